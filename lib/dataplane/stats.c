/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "core.h"

#define COUNTER(symbol, name, unit, help) [PBOX_CS_##symbol] = {name, unit, help, PBOX_STAT_COUNTER}

const struct pbox_stat_def pbox_core_stat_defs[PBOX_CS_STATS] = {
	COUNTER(RX_PACKETS, "rx_packets", "packets", "packets received from ports"),
	COUNTER(RX_BYTES, "rx_bytes", "bytes", "bytes of these packets"),
	COUNTER(HANDOFF_IN, "handoff_in", "packets", "packets taken over from other cores"),
	COUNTER(HANDOFF_OUT, "handoff_out", "packets", "packets handed to the core that owns them"),
	COUNTER(RX_ARP_REQUEST, "rx_arp_request", "packets", "ARP requests answered"),
	COUNTER(RX_ARP_REPLY, "rx_arp_reply", "packets", "ARP replies"),
	COUNTER(RX_ICMP_ECHO, "rx_icmp_echo", "packets", "pings answered"),
	COUNTER(RX_CONTROL, "rx_control", "packets", "datagrams for the control thread"),
	COUNTER(RX_DATA, "rx_data", "packets", "datagrams read as data frames"),
#define NET_DROP(symbol, name, help) COUNTER(DROP_##symbol, "drop_" name, "packets", help),
	PBOX_NET_DROPS(NET_DROP)
#undef NET_DROP
		COUNTER(DROP_SEGMENTS, "drop_segments", "packets",
			"packets in several buffers that do not fit one"),
	COUNTER(DROP_UDP_UNKNOWN_PORT, "drop_udp_unknown_port", "packets",
		"datagrams to a UDP port that is no endpoint here"),
	COUNTER(DROP_HANDOFF_FULL, "drop_handoff_full", "packets",
		"the ring to the owning core was full"),
	COUNTER(DROP_CONTROL_FULL, "drop_control_full", "packets",
		"the ring to the control thread was full"),
	COUNTER(DROP_CONTROL_RATE, "drop_control_rate", "packets",
		"more control frames than their session, job or address may send"),
	COUNTER(DROP_STOPPED, "drop_stopped", "packets", "on the way between cores at the stop"),
	COUNTER(FRAMES, "frames", "frames", "frames found in datagrams"),
	COUNTER(FRAMES_DATA, "frames_data", "frames", "frames given to the shard"),
	COUNTER(FRAMES_CONTROL, "frames_control", "frames",
		"control frames at a data port, given to the control thread"),
#define FRAME_DROP(symbol, number, name, help) COUNTER(FRAME_##symbol, #name, "frames", help),
	PBOX_WIRE_REFUSALS(FRAME_DROP)
#undef FRAME_DROP
		COUNTER(FRAME_CONTROL_FULL, "frame_control_full", "frames",
			"control frame at a data port, and the control thread was busy"),
	COUNTER(FRAME_CONTROL_RATE, "frame_control_rate", "frames",
		"control frame at a data port, beyond what its session may send"),
	COUNTER(UDP_CHECKSUM_PARTIAL, "udp_checksum_partial", "packets",
		"the sender left the UDP checksum to hardware that is not there"),
	COUNTER(UDP_CHECKSUM_BAD, "udp_checksum_bad", "packets",
		"the port found the UDP checksum wrong; the CRC of the frame decides"),
	COUNTER(ECN_CE, "ecn_ce", "packets", "data datagrams marked: congestion experienced"),
	COUNTER(PINGS_TOLD, "pings_told", "frames",
		"keep-alives that were answered, and that the control thread heard of"),
	COUNTER(TX_PACKETS, "tx_packets", "packets", "packets given to ports"),
	COUNTER(TX_BYTES, "tx_bytes", "bytes", "bytes of these packets"),
	COUNTER(TX_HANDOFF, "tx_handoff", "packets", "packets sent through another core"),
	COUNTER(TX_DROPPED, "tx_dropped", "packets", "not sent: the queue stayed full"),
	COUNTER(TX_NO_MBUF, "tx_no_mbuf", "packets", "not sent: no packet buffer"),
	COUNTER(TX_COPIED_BYTES, "tx_copied_bytes", "bytes",
		"parameters copied into answers: the port takes no chained buffers"),
	COUNTER(TX_SHARED_BYTES, "tx_shared_bytes", "bytes",
		"payload sent from parameter memory without a copy"),
	COUNTER(LOOPS, "loops", "turns", "turns of the loop (its heartbeat)"),
	COUNTER(LOOPS_BUSY, "loops_busy", "turns", "turns that found work"),
	COUNTER(CYCLES_BUSY, "cycles_busy", "cycles", "TSC cycles of turns with work"),
	COUNTER(CYCLES_IDLE, "cycles_idle", "cycles",
		"TSC cycles of turns without work, sleep excepted"),
	COUNTER(SLEEPS, "sleeps", "sleeps", "times that the core slept"),
	COUNTER(STAGE_TURNS, "stage_turns", "turns",
		"turns with work that were looked at stage by stage: one of 64"),
	COUNTER(STAGE_PACKETS, "stage_packets", "packets", "packets and mails of these turns"),
	COUNTER(STAGE_MAIL, "stage_mail", "cycles", "TSC cycles of these turns: mail of control"),
	COUNTER(STAGE_RECEIVE, "stage_receive", "cycles",
		"TSC cycles of these turns: receiving, parsing, handing to other cores"),
	COUNTER(STAGE_ENGINE, "stage_engine", "cycles",
		"TSC cycles of these turns: look-up, sums, optimiser"),
	COUNTER(STAGE_ANSWER, "stage_answer", "cycles",
		"TSC cycles of these turns: making answers"),
	COUNTER(STAGE_TRANSMIT, "stage_transmit", "cycles",
		"TSC cycles of these turns: giving packets to ports"),
};

const uint64_t *
pbox_dp_core_stats(const struct pbox_dp *dp, unsigned i)
{
	return dp->core[i]->stat;
}

const uint64_t *
pbox_dp_shard_stats(const struct pbox_dp *dp, unsigned i)
{
	return dp->core[i]->shard_stat;
}

bool
pbox_dp_running(const struct pbox_dp *dp, unsigned i)
{
	return atomic_load_explicit(&dp->core[i]->running, memory_order_acquire);
}

int
pbox_dp_core_tid(const struct pbox_dp *dp, unsigned i)
{
	return atomic_load_explicit(&dp->core[i]->tid, memory_order_relaxed);
}

uint64_t
pbox_dp_total(const struct pbox_dp *dp, enum pbox_core_stat what)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < dp->conf.n_cores; i++)
		sum += pbox_stat_get(&dp->core[i]->stat[what]);
	return sum;
}
