# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
# shellcheck shell=bash
#
# For tests with real processes in network namespaces; to be sourced first. On top of
# usertools/lib/netns.sh (make_net, start_box, worker_exec, worker_start, await, ...):
#
#   need root|torch|box|PROGRAM... skip the whole test where something is missing: a path, or a command with its package after =
#   skip_all REASON                skip the whole test
#   ok NAME, not_ok NAME [DETAIL], skip NAME REASON
#   check NAME COMMAND...          ok when the command succeeds
#   within SECONDS COMMAND...      runs it until it succeeds; its last output, and status 1 when the time is over
#   eventually NAME COMMAND...     check within two minutes: a machine that gives us no CPU for a while only makes it later
#   says PATTERN COMMAND...        a line of what it prints, whatever its status, has that (grep -E); else prints what it says
#   answers_ping I ADDRESS [OPTION...]   one of two ICMP echoes, from worker I's namespace
#   all_exist FILE...              for check and eventually
#   ready_box NAME LOG ARGUMENT... the daemon, as launch_box of netns.sh
#   exposure NAME LIMIT UNIT       what systemd finds a unit's sandbox to be is at most that, and printed
#   done_testing                   the last line; its status is the test's
#
# $RUN_DIR is a fresh folder for logs. It is removed at the end unless something failed, and then
# its path is printed. Everything started is ended by its process id, also after a signal.

set -uo pipefail

FUNC_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TOP=$(cd "$FUNC_DIR/../.." && pwd)
PATH=$PATH:/usr/sbin:/sbin
export PYTHON=${PYTHON:-/usr/bin/python3} # Debian's: another one on PATH may lack torch
RUN_DIR=$(mktemp -d)
# shellcheck source=usertools/lib/netns.sh
. "$TOP/usertools/lib/netns.sh"

PASSED=0 FAILED=0 SKIPPED=0 SUMMARY=0

ok() {
	printf 'ok - %s\n' "$1"
	PASSED=$((PASSED + 1))
}

not_ok() {
	printf 'not ok - %s\n' "$1"
	[[ -z ${2:-} ]] || printf '%s\n' "$2" | sed 's/^/    /'
	FAILED=$((FAILED + 1))
}

skip() {
	printf 'skip - %s: %s\n' "$1" "$2"
	SKIPPED=$((SKIPPED + 1))
}

check() {
	# long names: the command may be a function of the test, which sees these
	local check_name=$1 check_text
	shift
	if check_text=$("$@" 2>&1); then
		ok "$check_name"
	else
		not_ok "$check_name" "$check_text"
	fi
}

# soon: before a loop that looks with processes; longer: its naps, 0.05 s, and then each longer, up to 0.4 s
soon() { NEXT_NAP=5; }
longer() {
	local text
	printf -v text '0.%02d' "$NEXT_NAP"
	nap "$text"
	NEXT_NAP=$((NEXT_NAP < 27 ? NEXT_NAP * 3 / 2 : 40))
}

within() {
	local within_text within_end=$((SECONDS + $1))
	shift
	soon
	until within_text=$("$@" 2>&1); do
		((SECONDS < within_end)) || {
			printf '%s\n' "$within_text"
			return 1
		}
		longer
	done
	[[ -z $within_text ]] || printf '%s\n' "$within_text"
}

# hugepages_alone: waits for other tests that reserve hugepages or look for them; then they wait, until this one ends
hugepages_alone() {
	exec {HUGEPAGES_LOCK}>"/tmp/pbox-test-hugepages.$UID" && flock -w 600 "$HUGEPAGES_LOCK"
}

eventually() { check "$1" within 120 "${@:2}"; }

# not COMMAND | grep -q: the shell would take the command's status, too, or SIGPIPE where grep has seen enough
says() {
	local says_pattern=$1 says_text
	shift
	says_text=$("$@" 2>&1)
	grep -qE -- "$says_pattern" <<<"$says_text" || {
		printf '%s\n' "$says_text"
		return 1
	}
}

answers_ping() {
	worker_exec "$1" ping -q -c 2 -i 0.2 -W 2 "${@:3}" "$2"
}

all_exist() {
	local f
	for f; do
		[[ -e $f ]] || return
	done
}

exposure() {
	local text score
	text=$(systemd-analyze --no-pager security --offline=true "$3" 2>&1)
	score=$(sed -n 's/.*Overall exposure level.*: \([0-9.]*\) .*/\1/p' <<<"$text")
	if [[ -n $score ]] && awk -v score="$score" -v limit="$2" 'BEGIN { exit score > limit }'; then
		ok "$1 is $score, at most $2"
	else
		not_ok "$1 is ${score:-unknown}, at most $2" "$text"
	fi
}

# ready_box NAME LOG ARGUMENT...: launch_box; a line of the test only where it fails
ready_box() {
	local name=$1
	shift
	launch_box "$@" 2>"$RUN_DIR/said" && return
	not_ok "$name: ready" "$(<"$RUN_DIR/said")"
	return 1
}

done_testing() {
	SUMMARY=1
	printf '%d passed, %d failed' "$PASSED" "$FAILED"
	((SKIPPED == 0)) || printf ', %d skipped' "$SKIPPED"
	printf '\n'
	((FAILED == 0))
}

func_finish() {
	local status=$?
	trap - EXIT
	trap '' INT TERM
	cleanup_net
	if ((!SUMMARY)); then
		not_ok "the test came to its end" "it stopped with status $status"
		done_testing
		((status)) || status=1
	fi
	if ((FAILED)); then
		printf 'logs: %s\n' "$RUN_DIR"
	else
		rm -rf "$RUN_DIR"
	fi
	exit "$status"
}
trap func_finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# an import takes more than a second of a CPU
has_torch() { "$PYTHON" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))'; }

skip_all() {
	skip "${0##*/}" "$1"
	done_testing
	exit 77
}

need() {
	local what reason
	for what in "$@"; do
		reason=''
		case $what in
		root)
			((EUID == 0)) || reason="needs root for network namespaces"
			;;
		torch)
			has_torch || reason="no torch for $PYTHON"
			;;
		box)
			{ pbox_binary && pbox_library; } >/dev/null 2>&1 ||
				reason="no pbox or no libpbox-client.so.1 in $PBOX_BUILD"
			;;
		/*) [[ -x $what ]] || reason="no $what" ;;
		*=*) command -v "${what%=*}" >/dev/null || reason="no ${what%=*} (package ${what#*=})" ;;
		*) reason="unknown requirement $what" ;;
		esac
		[[ -z $reason ]] || skip_all "$reason"
	done
}
