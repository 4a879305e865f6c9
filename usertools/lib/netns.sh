# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
# shellcheck shell=bash
#
# A box and its workers in network namespaces of their own, joined by veth through a bridge that
# has a namespace too: nothing is added to the caller's network, and any number of these can
# be there side by side. For usertools/quickstart and the tests in test/func; to be sourced.
#
#   make_net WORKERS [MTU]         namespaces $NET-sw, $NET-box, $NET-w0, $NET-w1, ...
#   write_conf FILE JOB SECRET WORKERS [PORT]
#   start_box CONF [EAL ARGUMENT...]  the daemon, waits for its "ready"; PID in $BOX_PID
#   launch_box LOG ARGUMENT...     the same with arguments of its own, but --no-pci and --file-prefix
#   make_boxes N                   for a job at several boxes: namespaces $NET-box1 to $NET-box(N - 1) of the others
#   boxes_list N                   their addresses, with commas; box_address I: of one
#   launch_box_at I LOG CONF [EAL ARGUMENT...]  box I, as start_box
#   stop_box [SIGNAL]
#   worker_exec I COMMAND...       in the foreground, in worker I's namespace
#   worker_start I LOG COMMAND...  in the background; PID in $STARTED
#   await PID SECONDS              its exit status; 124: still running
#   nap SECONDS                    as sleep, without a process: looking often, and waiting long, takes no CPU
#   cleanup_net                    ends what was started here, by its id, and removes the rest
#
# Needs root, ip and ethtool. $RUN_DIR holds logs; cleanup_net leaves it to the caller.

NETNS_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
: "${PBOX_BUILD:=$NETNS_ROOT/build}"
: "${BOX_ADDRESS:=10.78.0.1}"
: "${BOX_MEMORY:=512}"
: "${BOX_LCORES:=0}"
: "${BOX_PORT:=net_af_packet0}" # or net_packet0: ours, faster
NET='' BOX_PID='' STARTED='' NET_MTU=0 NET_WORKERS=0
TRACKED=()

exec {NAP}<> <(:) # nobody writes there
nap() { read -rt "$1" -u "$NAP" || true; }

net_fail() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	return 1
}

worker_address() { printf '10.78.0.%d' $((10 + $1)); }

# The first of the names that exists.
first_file() {
	local f
	for f in "$@"; do
		[[ -e $f ]] && printf '%s\n' "$f" && return 0
	done
	return 1
}

pbox_binary() {
	[[ -n ${PBOX_BIN:-} ]] && printf '%s\n' "$PBOX_BIN" && return 0
	first_file "$PBOX_BUILD/app/pbox/pbox" ||
		net_fail "no pbox in $PBOX_BUILD: build it (meson setup build && meson compile -C build)"
}

pbox_library() {
	[[ -n ${PBOX_CLIENT_LIB:-} ]] && printf '%s\n' "$PBOX_CLIENT_LIB" && return 0
	first_file "$PBOX_BUILD/lib/client/so/libpbox-client.so.1" "$PBOX_BUILD/lib/libpbox-client.so.1" ||
		net_fail "no libpbox-client.so.1 in $PBOX_BUILD: build it first"
}

# One namespace, one veth into the switch. The kernel must not leave checksums or segmentation to
# hardware that is not there: the box would see partial checksums and 64 KiB frames.
net_attach() {
	local ns=$NET-$1 mtu=$2 address=$3
	ip netns add "$ns" || return
	ip -n "$ns" link set lo up
	ip netns exec "$ns" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 \
		net.ipv6.conf.default.disable_ipv6=1 2>/dev/null || true
	ip -n "$NET-sw" link add "p-$1" mtu "$mtu" numtxqueues 1 numrxqueues 1 type veth \
		peer name eth0 netns "$ns" mtu "$mtu" numtxqueues 1 numrxqueues 1 || return
	ip -n "$NET-sw" link set "p-$1" master br0 up || return
	ip netns exec "$ns" ethtool -K eth0 tx off >/dev/null || return
	# the box's side has no address, so that the kernel there stays silent
	[[ -z $address ]] || ip -n "$ns" addr add "$address/24" dev eth0 || return
	ip -n "$ns" link set eth0 up
}

make_net() {
	local workers=$1 mtu=${2:-9000} i
	RUN_DIR=${RUN_DIR:-$(mktemp -d)}
	grep -q '^[^ ]* [^ ]* [^ ]* [^ ]* / ' /proc/self/mountinfo || net_fail "the root of this chroot is no mount point," \
		"so 'ip netns exec' does not work in it: outside of it, mount --bind ROOT ROOT, mount proc, sys and dev below it," \
		"and then chroot ROOT" || return
	# names of interfaces and namespaces are short; 24 random bits and the check keep them unique
	while :; do
		NET=$(printf 'pb%02x%04x' $((RANDOM & 255)) $(((RANDOM << 1 ^ RANDOM) & 65535)))
		ip netns add "$NET-sw" 2>/dev/null && break
		[[ -e /run/netns/$NET-sw ]] || net_fail "cannot make a network namespace: needs root" ||
			return
	done
	NET_MTU=$mtu NET_WORKERS=$workers
	ip netns exec "$NET-sw" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 \
		net.ipv6.conf.default.disable_ipv6=1 2>/dev/null || true
	ip -n "$NET-sw" link add br0 mtu "$mtu" type bridge forward_delay 0 stp_state 0 \
		mcast_snooping 0 || return
	# where the kernel has bridge netfilter, every frame would pass iptables as well
	ip netns exec "$NET-sw" sysctl -qw net.bridge.bridge-nf-call-iptables=0 2>/dev/null || true
	ip -n "$NET-sw" link set br0 up || return
	net_attach box "$mtu" '' || return
	for ((i = 0; i < workers; i++)); do
		net_attach "w$i" "$mtu" "$(worker_address "$i")" || return
	done
}

write_conf() {
	local file=$1 job=$2 secret=$3 workers=$4 port=${5:-$BOX_PORT}
	cat >"$file" <<-EOF
		# sleep when idle: here there are fewer CPUs than pollers and workers
		cores-idle = sleep

		[port $port]
		address = $BOX_ADDRESS/24
		mtu = $NET_MTU

		[job $job]
		secret = $secret
		workers = $workers
	EOF
}

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

# Vdev arguments for frames of this MTU: framesz must divide blocksz, and a frame that does not
# fit is cut without an error.
box_vdev() {
	if [[ $BOX_PORT == net_packet0 ]]; then
		printf 'net_packet0,iface=eth0'
	elif ((NET_MTU <= 1500)); then
		printf 'net_af_packet0,iface=eth0,framesz=2048,blocksz=65536,framecnt=4096'
	else
		printf 'net_af_packet0,iface=eth0,framesz=9216,blocksz=36864,framecnt=4096'
	fi
}

launch_box() {
	local log=$1 bin end=$((SECONDS + 120))
	shift
	bin=$(pbox_binary) || return
	: >"$log"
	ip netns exec "${BOX_NS:-$NET-box}" "$bin" --no-pci --file-prefix "${BOX_PREFIX:-$NET}" "$@" >"$log" 2>&1 </dev/null &
	BOX_PID=$!
	TRACKED+=("$BOX_PID")
	while ! grep -qw ready "$log"; do
		if ! kill -0 "$BOX_PID" 2>/dev/null; then
			tail -n 15 "$log" >&2
			net_fail "the box did not start; its log: $log"
			return 1
		fi
		((SECONDS < end)) || net_fail "the box is not ready after 120 s; its log: $log" || return
		nap 0.05
	done
}

start_box() {
	local conf=$1 log=$RUN_DIR/box.log
	shift
	[[ ! -e $log ]] || mv "$log" "$log.$(date +%s%N)"
	launch_box "$log" -l "$BOX_LCORES" --no-huge -m "$BOX_MEMORY" --vdev "$(box_vdev)" "$@" -- --config "$conf"
}

launch_box_at() { # I LOG CONF [EAL ARGUMENT...]
	local log=$2 conf=$3 BOX_NS=$NET-box BOX_PREFIX=$NET-$1
	(($1 == 0)) || BOX_NS+=$1
	shift 3
	launch_box "$log" -l "$BOX_LCORES" --no-huge -m "$BOX_MEMORY" --vdev "$(box_vdev)" "$@" -- --config "$conf"
}

stop_box() {
	[[ -n $BOX_PID ]] || return 0
	end_process "$BOX_PID" "${1:-TERM}" 10
	BOX_PID=''
}

# Becomes the command: what calls it has the command's process id.
worker_become() {
	local i=$1 lib
	shift
	lib=$(pbox_library) || return
	export PBOX_CLIENT_LIB=$lib PBOX_BOX=$BOX_ADDRESS OMP_NUM_THREADS=1 RANK=$i
	export WORLD_SIZE=$NET_WORKERS MASTER_ADDR MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0
	export PYTHONPATH=$NETNS_ROOT/usertools/python${PYTHONPATH:+:$PYTHONPATH}
	export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
	MASTER_ADDR=$(worker_address 0)
	exec ip netns exec "$NET-w$i" "$@"
}

worker_exec() {
	(worker_become "$@")
}

worker_start() {
	local i=$1 log=$2
	shift 2
	(worker_become "$i" "$@") >"$log" 2>&1 </dev/null &
	STARTED=$!
	TRACKED+=("$STARTED")
}

# Only children of this shell, or of the process PARENT that starts some for it, that still run: an id that was given to somebody else is not one.
PARENT=''
is_running() {
	local stat
	{ read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
	stat=${stat##*) } # after the name: the state, and the parent
	[[ $stat == [!ZX]\ "$$ "* || $stat == [!ZX]\ "$BASHPID "* || (-n $PARENT && $stat == [!ZX]\ "$PARENT "*) ]]
}

# The exit status of a process that has ended.
exit_status() { wait "$1"; }

await() {
	local pid=$1 end=$((SECONDS + $2))
	while is_running "$pid"; do
		((SECONDS < end)) || return 124
		nap 0.05
	done
	exit_status "$pid"
} 2>/dev/null # the shell's own lines about children that were killed

# Signal it, and after so many seconds kill it.
end_process() {
	local pid=$1 signal=$2 seconds=$3
	is_running "$pid" || return 0
	kill -s "$signal" "$pid" 2>/dev/null
	await "$pid" "$seconds"
	if is_running "$pid"; then
		kill -s KILL "$pid" 2>/dev/null
		await "$pid" 10
	fi
	return 0
} 2>/dev/null

cleanup_net() {
	local pid ns
	# the workers first: they can still leave
	for pid in "${TRACKED[@]}"; do
		[[ $pid == "$BOX_PID" ]] || { is_running "$pid" && kill -s TERM "$pid" 2>/dev/null; }
	done
	for pid in "${TRACKED[@]}"; do
		[[ $pid == "$BOX_PID" ]] || end_process "$pid" TERM 3
	done
	stop_box TERM
	TRACKED=()
	[[ -n $NET ]] || return 0
	for ns in $(ip netns list | awk -v n="$NET-" 'index($1, n) == 1 {print $1}'); do
		# children of what was started; the namespaces are ours, so are their processes
		for pid in $(ip netns pids "$ns" 2>/dev/null); do
			kill -s KILL "$pid" 2>/dev/null
		done
		ip netns del "$ns"
		rm -rf "/etc/netns/$ns" # files that programs in it saw in place of the host's
	done
	# EAL leaves its run-time directory; other DPDK programs of a test add to the name
	rm -rf "${XDG_RUNTIME_DIR:-/run}/dpdk/$NET"{,-*} "/var/run/dpdk/$NET"{,-*}
	NET=''
}
