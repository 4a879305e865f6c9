# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
# shellcheck shell=bash
#
# For tests whose workers are programs in torch; to be sourced after lib.sh. An import of torch takes more than a second of a CPU, and
# such a test has up to 50 processes: here worker_start of "$PYTHON" torch_*.py ARGUMENT... is a fork of one process that has imported it
# (torch_server.py). $STARTED is the program's own process id, which await, end_process and kill take as before; its parent is the server.
# All other commands are started as netns.sh does.
#
#   TORCH_IMAGES=1                      before the first one: most programs load Fashion-MNIST, which the server does for them
#   torch_exec I torch_*.py ARGUMENT...    in the foreground, as worker_exec; what it prints comes at its end
#   ranks NAME JOB PROGRAM...     both ranks of a job of two; their logs are NAME.0 and NAME.1. Status: of one that failed
#   runs NAME WORKERS PROGRAM ARGUMENT...  all workers of a job, without waiting: logs NAME.0, ..., and ${PIDS[@]}; they print `round N DIGEST`,
#                                 `same` or `differs` for each compared with the reference, and `end`
#   ended NAME WORKERS            all of them, well; else the ends of logs
#   alike_bits NAME               all of them have the same bits after each round that any two of them have; there are twelve at least
#   equal NAME STEPS [WORKERS]    so many steps of worker 0, or of so many, are the reference's
#   alike A B                     what they print as `loss ... NUMBER` and `sum ... NUMBER` differs by 1e-5 at most, and there is some

TORCH_FOLDER=$RUN_DIR/.torch TORCH_ASK='' TORCH_ANSWER=''
declare -A TORCH_PIDS=() # what it has started

torch_server() { # begins when it is needed first
	mkdir "$TORCH_FOLDER" && mkfifo "$TORCH_FOLDER"/{ask,answer} || return
	exec {TORCH_ASK}<>"$TORCH_FOLDER/ask" {TORCH_ANSWER}<>"$TORCH_FOLDER/answer"
	PBOX_CLIENT_LIB=$(pbox_library) OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
		PYTHONPATH=$TOP/usertools/python${PYTHONPATH:+:$PYTHONPATH} \
		"$PYTHON" "$FUNC_DIR/torch_server.py" "$TORCH_FOLDER" ${TORCH_IMAGES:+images} >"$TORCH_FOLDER/log" 2>&1 </dev/null &
	PARENT=$!
	TRACKED+=("$PARENT")
}

eval "process_start$(declare -f worker_start | sed '1s/^worker_start//')"

worker_start() {
	local i=$1 log=$2 line='' part
	[[ $3 == "$PYTHON" && $4 == */torch_*.py ]] || {
		process_start "$@"
		return
	}
	shift 3
	[[ -n $PARENT ]] || torch_server || return
	{
		printf '%s\0' "$NET-w$i" "$log" "$PWD" $# "$@"
		worker_exec "$i" env -0
		printf '\0'
	} >&"$TORCH_ASK"
	until read -rt 1 part <&"$TORCH_ANSWER"; do
		line+=$part # the time may be over in the middle of a line
		is_running "$PARENT" || {
			not_ok "the process that has imported torch" "$(tail -n 5 "$TORCH_FOLDER/log")"
			exit 1
		}
	done
	STARTED=$line$part
	TORCH_PIDS[$STARTED]=1
	TRACKED+=("$STARTED")
}

torch_exec() {
	local log=$TORCH_FOLDER.exec status
	worker_start "$1" "$log" "$PYTHON" "${@:2}"
	await "$STARTED" 600
	status=$?
	cat "$log"
	return "$status"
}

exit_status() {
	if [[ -z ${TORCH_PIDS[$1]:-} ]]; then
		wait "$1"
		return
	fi
	until [[ -e $TORCH_FOLDER/$1 ]]; do
		is_running "$PARENT" || return 127
		nap 0.01
	done
	return "$(<"$TORCH_FOLDER/$1")"
}

LONG=300 # seconds: only a hang takes so long

ranks() {
	local name=$1 i pids=() status=0
	export PBOX_JOB=$2
	shift 2
	for i in 0 1; do
		worker_start "$i" "$RUN_DIR/$name.$i" "$PYTHON" "$@"
		pids+=("$STARTED")
	done
	for i in 0 1; do
		await "${pids[i]}" "$LONG" || status=$?
	done
	return "$status"
}

alike() {
	local i
	for i in 0 1; do
		paste <(grep -E '^(loss|sum) ' "$RUN_DIR/$1.$i") <(grep -E '^(loss|sum) ' "$RUN_DIR/$2.$i") |
			awk '{a = $(NF / 2); b = $NF; d = a - b; if (d < 0) d = -d; if (NF % 2 || d > 1e-5 * (1 + (a < 0 ? -a : a))) {bad = 1; print}}
				END {exit bad || NR < 4}' || return
	done
}

runs() {
	local name=$1 n=$2 program=$3 i
	shift 3
	PIDS=()
	for ((i = 0; i < n; i++)); do
		worker_start "$i" "$RUN_DIR/$name.$i" "$PYTHON" "$program" "$name" "$@" --workers "$n"
		PIDS[i]=$STARTED
	done
}
ended() {
	local i status=0
	for ((i = 0; i < $2; i++)); do
		if ! await "${PIDS[i]}" 240 || ! grep -qx end "$RUN_DIR/$1.$i"; then
			tail -n 5 "$RUN_DIR/$1.$i"
			status=1
		fi
	done
	return $status
}
alike_bits() {
	cat "$RUN_DIR/$1".? | awk '$1 == "round" {if ($2 in d && d[$2] != $3) {print "round " $2 " differs"; bad = 1} d[$2] = $3; n++} END {exit bad || n < 12}'
}
equal() {
	local i
	for ((i = 0; i < ${3:-1}; i++)); do
		grep -m 1 '^differs' "$RUN_DIR/$1.$i" && return 1
		[[ $(grep -c '^same' "$RUN_DIR/$1.$i") == "$2" ]] || {
			tail -n 3 "$RUN_DIR/$1.$i"
			return 1
		}
	done
}
