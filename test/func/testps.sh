# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
# shellcheck shell=bash
#
# For tests of pbox-testps beside a daemon; to be sourced after box.sh:
#
#   conf PORT [LINE OF THE JOB...]        the daemon's configuration
#   serve NAME CORES EAL...               the daemon, on so many cores of one CPU; NAME -: it is not waited for
#   testps EAL... -- ARGUMENT...          in the first worker's namespace, on $LANES
#   all WORKERS ROUNDS                    its JSON has all results of all rounds, they are right, and each lcore
#                                         has had its part
#   right NAME WORKERS ROUNDS ARGUMENT... over the veth, or $VDEV
#   says STATUS PATTERN EAL... -- ARGUMENT...

TESTPS=$PBOX_BUILD/app/test-ps/pbox-testps
need "$TESTPS"
BOX_CORES=('0@0' '0@0,1@0' '0@0,1@0,2@0')
OUT=$RUN_DIR/out.json
LANES=0@0,1@0

# testps EAL -- ARGUMENT...: in the first worker's namespace
testps() {
	local eal=()
	while [[ $1 != -- ]]; do
		eal+=("$1")
		shift
	done
	shift
	rm -f "$OUT"
	worker_exec 0 timeout 240 "$TESTPS" --lcores "$LANES" --no-huge -m 512 --no-pci --no-telemetry \
		--log-level error --file-prefix "$NET-t" "${eal[@]}" -- --idle sleep --json "$OUT" "$@" \
		2>&1
}

# all WORKERS ROUNDS: the JSON says that all results of all rounds came, and were right
all() {
	"$PYTHON" - "$OUT" "$1" "$2" <<'PY'
import json, sys

d = json.load(open(sys.argv[1]))
workers, rounds = int(sys.argv[2]), int(sys.argv[3])
c, s = d["counters"], d["settings"]
want = workers * rounds * s["fragments"]
assert d["program"] == "pbox-testps" and s["workers"] == workers, s
assert c["rounds"] == workers * rounds, (c["rounds"], workers * rounds)
assert c["wrong"] == 0 and c["checked"] == c["results"] == want, (c, want)
assert c["contributions"] == want, c
each = [x["contributions"] for x in d["lcores"]]
assert sum(each) == want and all((x > 0) == (i < workers) for i, x in enumerate(each)), each
assert c["pull_bytes"] >= c["push_bytes"] > 0 or s["pull"] != s["push"], c
PY
}

# right NAME WORKERS ROUNDS ARGUMENT...: over a veth
right() {
	local name=$1 workers=$2 rounds=$3 text
	shift 3
	if text=$(testps --vdev "${VDEV:-$(box_vdev)}" -- --box "$BOX_ADDRESS" --address "$(worker_address 0)/24" \
		--secret "$SECRET" --workers "$workers" --rounds "$rounds" "$@" &&
		all "$workers" "$rounds"); then
		ok "$name"
	else
		not_ok "$name" "$text"
	fi
}

# says STATUS PATTERN ARGUMENT...
says() {
	local want=$1 pattern=$2 text got
	shift 2
	text=$(testps "$@")
	got=$?
	[[ $got == "$want" ]] && grep -qE -- "$pattern" <<<"$text" && return 0
	printf 'status %s, want %s and /%s/:\n%s\n' "$got" "$want" "$pattern" "$text"
	return 1
}

conf() { # PORT [LINE OF THE JOB...]
	cat >"$RUN_DIR/pbox.conf" <<-EOT
		cores-idle = sleep
		max-jobs = 2

		[port $1]
		address = $BOX_ADDRESS/24
		mtu = $NET_MTU

		[job *]
		secret = $SECRET
		$(printf '%s\n' "${@:2}")
	EOT
}

serve() { # NAME CORES EAL...
	local name=$1 cores=$2 log=$RUN_DIR/box.log
	shift 2
	: >"$log"
	ip netns exec "$NET-box" "$(pbox_binary)" --lcores "${BOX_CORES[cores - 1]}" --no-huge -m 768 --no-pci \
		--file-prefix "$NET" "$@" -- --config "$RUN_DIR/pbox.conf" >"$log" 2>&1 </dev/null &
	BOX_PID=$!
	TRACKED+=("$BOX_PID")
	[[ $name == - ]] || check "$name: ready" has "$log" '^ready:' 40
}

