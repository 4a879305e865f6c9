# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
# shellcheck shell=bash
#
# For tests of the daemon with workers that need no library, but Python alone; to be sourced after
# lib.sh:
#
#   has FILE PATTERN [SECONDS]
#   two_workers NAME ARGUMENT...   a job of two; the arguments are those of test/spec/pbox_worker.py
#   counter PATTERN                in /pbox/stats
#   clean_stop NAME [kept]         kept: the driver keeps some packet buffers, and the log says so
#                                  The sandbox has refused nothing up to then.

export PBOX_CLIENT_LIB=none PYTHONDONTWRITEBYTECODE=1
SECRET=right-secret
WORKER=$TOP/test/spec/pbox_worker.py
WORKER_SECONDS=240
PIDS=()

# has FILE PATTERN [SECONDS]: within that time, 120 s at least: what is late on a busy machine is not wrong
has() {
	within $((${3:-120} < 120 ? 120 : ${3:-120})) in_file "$1" "$2"
}

in_file() { # FILE PATTERN
	grep -qE "$2" "$1" || {
		printf 'no /%s/ in:\n' "$2"
		tail -n 8 "$1"
		return 1
	}
}

# two_workers NAME ARGUMENT...: both end well, and all that they got was right
two_workers() {
	local name=$1 i status=0
	shift
	for i in 0 1; do
		worker_start "$i" "$RUN_DIR/worker.$i" "$PYTHON" "$WORKER" --box "$BOX_ADDRESS" \
			--job j1 --secret "$SECRET" --worker "$i" --workers 2 --mtu "$NET_MTU" --deadline "$WORKER_SECONDS" "$@"
		PIDS[i]=$STARTED
	done
	for i in 0 1; do
		await "${PIDS[i]}" "$WORKER_SECONDS" || status=1
		end_process "${PIDS[i]}" KILL 1
		grep -q '"ok": true' "$RUN_DIR/worker.$i" || status=1
	done
	if ((status)); then
		not_ok "$name" "$(cat "$RUN_DIR"/worker.[01])"
	else
		ok "$name"
	fi
}

# The stop: within drain (2 s), the 5 s that data cores have, and 3 s for all else; exit status 0, and its last line
# says that nothing is missing.
clean_stop() {
	local name=$1 kept=${2:-} pid=$BOX_PID status line began
	began=$(date +%s%N)
	kill -TERM "$pid"
	await "$pid" 120
	status=$?
	began=$((($(date +%s%N) - began) / 1000000))
	BOX_PID=''
	line=$(grep '^stopped: ' "$RUN_DIR/box.log")
	if [[ $status == 0 && $line =~ ^stopped:\ mbufs\ ([0-9]+)\ of\ ([0-9]+)\ returned,\ received\ ([0-9]+)\ =\ accepted\ ([0-9]+)\ \+\ dropped\ ([0-9]+)$ ]] &&
		{ ((BASH_REMATCH[1] == BASH_REMATCH[2])) || [[ $kept == kept ]]; } &&
		((BASH_REMATCH[3] == BASH_REMATCH[4] + BASH_REMATCH[5])) &&
		! grep -q 'the sandbox refused' "$RUN_DIR/box.log"; then
		ok "$name, after $began ms"
	else
		not_ok "$name" "after $began ms, status $status: $(
			grep 'the sandbox refused' "$RUN_DIR/box.log"
			tail -n 5 "$RUN_DIR/box.log"
		)"
	fi
}

counter() { # PATTERN in /pbox/stats
	printf '/pbox/stats\n' | dpdk-telemetry.py -f "$NET" | tail -n 1 | grep -qE "$1"
}
