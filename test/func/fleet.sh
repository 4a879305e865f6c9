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
#   boxes_ctl I COMMAND... pbox-ctl at box I
#   fleet N [LINE...]      N boxes start, all with these lines, for job `test` with SECRET and two workers
#   job NAME BOX ARGUMENT...  two workers (fleet_worker.py); logs $RUN_DIR/NAME.0 and .1, processes PIDS
#   job_ends TEST NAME     both do, without an error
#   has_round NAME N       both have had that round
#   same NAME OTHER        all results are the same

SECRET=right-secret
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

boxes_ctl() { # I COMMAND...
	local i=$1
	shift
	"$TOP/usertools/pbox-ctl" -f "$NET-$i" "$@"
}

fleet() {
	local n=$1 i
	shift
	for ((i = 0; i < n; i++)); do
		boxes_conf "$i" "$n" "$SECRET" 2 "$@"
		boxes_start "$i" || return
	done
}

job() {
	local name=$1 box=$2 i
	shift 2
	for i in 0 1; do
		worker_start "$i" "$RUN_DIR/$name.$i" "$PYTHON" "$FUNC_DIR/fleet_worker.py" "$box" "${KEY:-$SECRET}" "$i" 2 "$@"
		PIDS[i]=$STARTED
	done
}

job_ends() {
	local i status=0
	for i in 0 1; do
		await "${PIDS[i]}" 240 || status=1
	done
	if ((status)); then
		not_ok "$1" "$(tail -n 3 "$RUN_DIR/$2".[01])"
	else
		ok "$1"
	fi
}

digest() { awk '$1 == "digest" {print $2}' "$RUN_DIR/$1".[01] | sort -u; }

same() { # NAME OTHER
	local a b
	a=$(digest "$1") b=$(digest "$2")
	[[ -n $a && $a == "$b" ]] || {
		printf '%s\n%s\n' "$a" "$b"
		tail -n 2 "$RUN_DIR/$1".[01]
		return 1
	}
}

has_round() { grep -q "^round $2\$" "$RUN_DIR/$1.0" && grep -q "^round $2\$" "$RUN_DIR/$1.1"; }
