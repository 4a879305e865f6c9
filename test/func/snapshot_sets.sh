# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
# shellcheck shell=bash
#
# For tests of sets of snapshots at three boxes; to be sourced after fleet.sh.
#
#   start_all, kill_all    the three boxes, with $RUN_DIR/snap.I each
#   train NAME FIRST LAST [--pause ROUND FILE]   two workers (snapshot_worker.py); PID in $STARTED
#   done_well STATUS NAME  they have ended without an error
#   same_arrays NAME ARRAYS OTHER ARRAYS   bits of both workers
#   files I ROUND          snapshots of box I
#   again                  boxes are killed, and have the files of $RUN_DIR/kept.I again
#   restore_at ROUND I...  the next run begins with the files of that round
#   nothing_trained NAME PATTERN   workers end with that error

start_all() {
	local i
	for i in 0 1 2; do
		mkdir -p "$RUN_DIR/snap.$i"
		boxes_conf "$i" 3 "$SECRET" 2 "snapshot-dir = $RUN_DIR/snap.$i" 'snapshot-memory = 8M'
		boxes_start "$i" || return
	done
}
kill_all() {
	local i
	for i in "${!BOX_PIDS[@]}"; do boxes_kill "$i"; done
}
train() { # NAME ARGUMENT...: PID in $STARTED
	local name=$1
	shift
	unset PBOX_CLIENT_LIB
	BOX_ADDRESS=$(boxes_list 3) worker_start 0 "$RUN_DIR/$name.log" "$PYTHON" "$FUNC_DIR/snapshot_worker.py" "$RUN_DIR/$name" "$@"
}
# same FILE ARRAYS FILE ARRAYS: of both workers
same_arrays() {
	"$PYTHON" - "$RUN_DIR/$1" "$2" "$RUN_DIR/$3" "$4" <<-'END'
		import sys, numpy as np
		for w in "01":
		    a, b = (np.load(f"{f}.{w}.npz") for f in sys.argv[1::2])
		    for k in range(3):
		        x, y = a[f"{sys.argv[2]}{k}"], b[f"{sys.argv[4]}{k}"]
		        assert x.tobytes() == y.tobytes(), (w, k, np.abs(x - y).max())
	END
}
done_well() { # STATUS NAME
	(($1 == 0)) && grep -q '^done' "$RUN_DIR/$2.log" && return
	tail -n 5 "$RUN_DIR/$2.log"
	return 1
}
files() { # I ROUND
	find "$RUN_DIR/snap.$1" -name "test.0.*.$(printf %010d "$2").*.snap" | sort
}
# all boxes with the files as they were taken
again() {
	local i
	kill_all
	for i in 0 1 2; do
		rm -rf "$RUN_DIR/snap.$i"
		cp -r "$RUN_DIR/kept.$i" "$RUN_DIR/snap.$i"
	done
}
restore_at() { # ROUND I...
	local round=$1 i
	shift
	for i; do boxes_ctl "$i" restore test --round "$round" || return; done
}
nothing_trained() { # NAME PATTERN
	# shellcheck disable=SC2153 # of the test: the round of its files
	train "$1" $((ROUND + 1)) "$LAST"
	await "$STARTED" 120
	check "$1: the error names it" grep -qE "$2" "$RUN_DIR/$1.log"
	grep -qE "$2" "$RUN_DIR/$1.log" || tail -n 3 "$RUN_DIR/$1.log"
	check "$1: nothing is trained" bash -c "! ls '$RUN_DIR/$1'.begun.* '$RUN_DIR/$1'.[01].npz 2>/dev/null | grep ."
}
