# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
# shellcheck shell=bash
#
# A real etcd and pbox-agent, in namespaces beside the boxes' (make_net first); to be sourced after fleet.sh.
#
#   make_etcd N [OPTION...]       namespaces of N members, $NET-e0 and so on; options of etcd for all
#   etcd_start I, etcd_kill I     a member; its PID in ETCD_PIDS[I]. Its data stay
#   etcd_ctl ARGUMENT...          etcdctl, to all members
#   etcd_leader                   the number of the member that leads
#   etcd_urls                     for pbox.conf
#   make_agents N                 namespaces $NET-a0 and so on
#   agent_start I [ARGUMENT...]   of box I, with $RUN_DIR/box.I.conf; its PID in AGENT_PIDS[I], its log $RUN_DIR/agent.I.log
#   agent_kill I [SIGNAL]
#   agent_run I ARGUMENT...       in the foreground
#   ctl I ARGUMENT...             pbox-ctl of box I

ETCD_PIDS=() AGENT_PIDS=() ETCD_N=0 ETCD_OPTIONS=()
: "${ETCD_SCHEME:=http}"

etcd_address() { printf '10.78.0.%d' $((100 + $1)); }
agent_binary() { first_file "$PBOX_BUILD/app/agent/pbox-agent"; }

make_etcd() {
	local i
	ETCD_N=$1
	shift
	ETCD_OPTIONS=("$@")
	for ((i = 0; i < ETCD_N; i++)); do
		net_attach "e$i" 1500 "$(etcd_address "$i")" || return
	done
}

make_agents() {
	local i
	for ((i = 0; i < $1; i++)); do
		net_attach "a$i" 1500 "10.78.0.$((120 + i))" || return
	done
}

etcd_urls() {
	local i list=''
	for ((i = 0; i < ETCD_N; i++)); do
		list+="${list:+, }$ETCD_SCHEME://$(etcd_address "$i"):2379"
	done
	printf '%s' "$list"
}

# members elect within 5 s, as where they are far from each other
etcd_start() {
	local i=$1 k peers='' at
	at=$(etcd_address "$i")
	for ((k = 0; k < ETCD_N; k++)); do
		peers+="${peers:+,}e$k=http://$(etcd_address "$k"):2380"
	done
	ip netns exec "$NET-e$i" etcd --name "e$i" --data-dir "$RUN_DIR/etcd.$i" --initial-cluster "$peers" \
		--initial-cluster-token "$NET" --listen-peer-urls "http://$at:2380" --initial-advertise-peer-urls "http://$at:2380" \
		--listen-client-urls "$ETCD_SCHEME://$at:2379" --advertise-client-urls "$ETCD_SCHEME://$at:2379" \
		--heartbeat-interval 500 --election-timeout 5000 --logger zap --log-level warn \
		"${ETCD_OPTIONS[@]}" >>"$RUN_DIR/etcd.$i.log" 2>&1 </dev/null &
	ETCD_PIDS[i]=$!
	TRACKED+=("${ETCD_PIDS[i]}")
}

etcd_kill() { end_process "${ETCD_PIDS[$1]}" KILL 10; }

etcd_ctl() {
	local i list=''
	for ((i = 0; i < ETCD_N; i++)); do
		list+="${list:+,}$ETCD_SCHEME://$(etcd_address "$i"):2379"
	done
	ETCDCTL_API=3 ip netns exec "$NET-e0" etcdctl --dial-timeout 2s --command-timeout 8s --endpoints "$list" "$@"
}

etcd_leader() {
	local i
	i=$(etcd_ctl endpoint status -w fields 2>/dev/null | awk -F' : ' '
		$1 ~ /MemberID/ { id = $2 } $1 ~ /"Leader"/ { leader = $2 } $1 ~ /Endpoint/ { if (id == leader) print $2 }' |
		sed -n 's/.*10\.78\.0\.\([0-9]*\):.*/\1/p' | head -n 1)
	[[ -n $i ]] && printf '%d\n' $((i - 100))
}

# agent_conf I N [LINE...]: box I of N, with these lines in [cluster]
agent_conf() {
	local i=$1 n=$2
	shift 2
	boxes_conf "$i" "$n" right-secret 2
	printf '[cluster test]\n' >>"$RUN_DIR/box.$i.conf"
	printf '%s\n' "$@" >>"$RUN_DIR/box.$i.conf"
	chmod 600 "$RUN_DIR/box.$i.conf"
}

agent_run() {
	local i=$1
	shift
	RUNTIME_DIRECTORY=$RUN_DIR ip netns exec "$NET-a$i" "$(agent_binary)" -c "$RUN_DIR/box.$i.conf" -f "$NET-$i" "$@"
}

agent_start() {
	local i=$1
	shift
	rm -f "$RUN_DIR/agent.$NET-$i.json" # of an earlier one
	RUNTIME_DIRECTORY=$RUN_DIR ip netns exec "$NET-a$i" "$@" "$(agent_binary)" -c "$RUN_DIR/box.$i.conf" -f "$NET-$i" \
		>>"$RUN_DIR/agent.$i.log" 2>&1 </dev/null &
	AGENT_PIDS[i]=$!
	TRACKED+=("${AGENT_PIDS[i]}")
}

agent_kill() { end_process "${AGENT_PIDS[$1]}" "${2:-KILL}" 15; }

ctl() {
	local i=$1
	shift
	RUNTIME_DIRECTORY=$RUN_DIR "$TOP/usertools/pbox-ctl" -f "$NET-$i" "$@"
}
