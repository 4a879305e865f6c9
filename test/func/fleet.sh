# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
# shellcheck shell=bash
#
# For tests of a job at several boxes; to be sourced after lib.sh. Box 0 is that of lib.sh's network.
#
#   make_boxes N           namespaces of boxes 1 to N - 1
#   boxes_list N           their addresses, with commas
#   boxes_conf I N SECRET WORKERS [LINE...]   the configuration of box I, with more lines for it: $RUN_DIR/box.I.conf
#   boxes_start I          launches it; its PID in BOX_PIDS[I]
#   boxes_kill I           kill -9
#   boxes_stop             all that run

BOX_PIDS=()

box_address() { printf '10.78.0.%d' $((1 + $1)); }

boxes_list() {
	local i list=''
	for ((i = 0; i < $1; i++)); do
		list+=${list:+,}$(box_address "$i")
	done
	printf '%s' "$list"
}

make_boxes() {
	local i
	for ((i = 1; i < $1; i++)); do
		net_attach "box$i" "$NET_MTU" '' || return
	done
}

boxes_conf() { # I N SECRET WORKERS [LINE...]
	local file=$RUN_DIR/box.$1.conf n=$2 i=$1 BOX_ADDRESS
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
	local i=$1 log=$RUN_DIR/box.$1.log bin end=$((SECONDS + 120)) ns=$NET-box
	((i == 0)) || ns=$NET-box$i
	bin=$(pbox_binary) || return
	[[ ! -e $log ]] || mv "$log" "$log.$(date +%s%N)"
	: >"$log"
	ip netns exec "$ns" "$bin" --no-pci --file-prefix "$NET-$i" -l "$BOX_LCORES" --no-huge -m "$BOX_MEMORY" \
		--vdev "$(box_vdev)" -- --config "$RUN_DIR/box.$i.conf" >"$log" 2>&1 </dev/null &
	BOX_PIDS[i]=$!
	TRACKED+=("${BOX_PIDS[i]}")
	while ! grep -qw ready "$log"; do
		if ! kill -0 "${BOX_PIDS[i]}" 2>/dev/null || ((SECONDS >= end)); then
			tail -n 15 "$log" >&2
			net_fail "box $i did not start; its log: $log"
			return 1
		fi
		nap 0.05
	done
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
