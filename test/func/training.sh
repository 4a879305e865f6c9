# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
# shellcheck shell=bash
#
# For tests of trainings (torch_trainer.py) that are disturbed; to be sourced after lib.sh. $RUN_DIR/RUN is
# the folder of a run.

. "$FUNC_DIR/torch.sh"

TRAINER=$FUNC_DIR/torch_trainer.py
# shellcheck disable=SC2034 # who sources it uses it
PIDS=() # of workers 0, 1, ...

start_worker() { # FOLDER I ARGUMENT...: its log grows with each process
	local folder=$1 i=$2
	shift 2
	worker_start "$i" "$folder/worker.$i.$(date +%s%N)" "$PYTHON" "$TRAINER" train \
		--folder "$folder" "$@"
	# shellcheck disable=SC2034
	PIDS[i]=$STARTED
}

steps() { cat "$1"/worker.* 2>/dev/null | grep -c '^step '; }

has_steps() { (($(steps "$1") >= $2)); }

# Wait until there are so many more steps; they must come within 300 s: new processes load torch before.
more_steps() { # FOLDER N
	within 300 has_steps "$1" $(($(steps "$1") + $2))
}

last() { # FOLDER WORD: of all workers
	cat "$RUN_DIR/$1"/worker.* | awk -v w="$2" '$1 == w {print $2}' | sort -u
}

ends() { # NAME COMMAND...: as check, in this shell
	local name=$1
	shift
	if "$@" >"$RUN_DIR/said" 2>&1; then
		ok "$name"
	else
		not_ok "$name" "$(tail -n 30 "$RUN_DIR/said")"
	fi
}
