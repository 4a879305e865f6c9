# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
# shellcheck shell=bash
#
# For tests of a job at several boxes; to be sourced after lib.sh. make_boxes, boxes_list and box_address are those of netns.sh.
#
#   boxes_conf I N SECRET WORKERS [LINE...]   the configuration of box I, with more lines for it: $RUN_DIR/box.I.conf
#   boxes_start I          launches it, with FAULTS[I] if there are any; its PID in BOX_PIDS[I]
#   boxes_kill I           kill -9
#   boxes_stop             all that run

BOX_PIDS=()
FAULTS=() # of a box: a device net_chaos0, for BOX_PORT

boxes_conf() { # I N SECRET WORKERS [LINE...]
	local file=$RUN_DIR/box.$1.conf n=$2 i=$1 BOX_ADDRESS
	# shellcheck disable=SC2034 # write_conf uses it
	BOX_ADDRESS=$(box_address "$i")
	write_conf "$file.part" test "$3" "$4"
	shift 4
	{
		((n < 2)) || printf 'boxes = %s\n' "$(boxes_list "$n")"
		((${#@} == 0)) || printf '%s\n' "$@"
		cat "$file.part"
	} >"$file"
}

boxes_start() { # I
	local log=$RUN_DIR/box.$1.log
	[[ ! -e $log ]] || mv "$log" "$log.$(date +%s%N)"
	# shellcheck disable=SC2086 # none, or two arguments
	launch_box_at "$1" "$log" "$RUN_DIR/box.$1.conf" ${FAULTS[$1]:+--vdev ${FAULTS[$1]}} || return
	BOX_PIDS[$1]=$BOX_PID
	BOX_PID=''
}

boxes_kill() {
	end_process "${BOX_PIDS[$1]}" KILL 10
	unset "BOX_PIDS[$1]"
}

boxes_stop() {
	local i
	for i in "${!BOX_PIDS[@]}"; do
		end_process "${BOX_PIDS[i]}" TERM 10
	done
	BOX_PIDS=()
}
