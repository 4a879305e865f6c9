/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_string_fns.h>

#include "port_priv.h"

/* What AF_PACKET rings take of a frame for themselves: a 32-byte header before, and on receipt
 * the sockaddr and padding up to the network header. */
#define AF_PACKET_HEADER   32
#define AF_PACKET_RX_SPACE 66
#define AF_PACKET_FRAMESZ  2048
/* XDP_PACKET_HEADROOM of the kernel */
#define XDP_HEADROOM 256

const char *
pbox_port_name(uint16_t id)
{
	static __thread char name[RTE_ETH_NAME_MAX_LEN];

	return rte_eth_dev_get_name_by_port(id, name) == 0 ? name : "?";
}

int
pbox_port_node(uint16_t id)
{
	return rte_eth_dev_socket_id(id);
}

static bool
device_is_usable(uint16_t id)
{
	struct rte_eth_dev_info info;

	return rte_eth_dev_info_get(id, &info) != 0 ||
	       (*info.dev_flags & RTE_ETH_DEV_BONDED_SLAVE) == 0;
}

uint16_t
pbox_port_shared_queues(uint16_t id)
{
	struct rte_eth_dev_info info;

	if (rte_eth_dev_info_get(id, &info) != 0 ||
		(strcmp(info.driver_name, "net_virtio_user") != 0 &&
			strcmp(info.driver_name, "net_vhost") != 0))
		return 0;
	return RTE_MIN(info.max_rx_queues, info.max_tx_queues);
}

unsigned
pbox_port_list(uint16_t *id, unsigned max)
{
	unsigned n = 0;
	uint16_t i;

	/* walks ports without an owner only */
	RTE_ETH_FOREACH_DEV (i) {
		if (!device_is_usable(i))
			continue;
		if (n < max)
			id[n] = i;
		n++;
	}
	return n;
}

int
pbox_port_find(const char *name, uint16_t *id, struct pbox_error *err)
{
	uint16_t list[RTE_MAX_ETHPORTS];
	unsigned n = pbox_port_list(list, RTE_MAX_ETHPORTS);
	char there[256] = "";
	char *end;
	unsigned long number = strtoul(name, &end, 10);

	for (unsigned i = 0; i < n; i++) {
		size_t at = strlen(there);

		if (*end == '\0' ? number == list[i] : strcmp(pbox_port_name(list[i]), name) == 0) {
			*id = list[i];
			return 0;
		}
		snprintf(there + at, sizeof(there) - at, "%sport %u (%s)", i > 0 ? ", " : "",
			list[i], pbox_port_name(list[i]));
	}
	return pbox_fail(err, ENODEV, "there is no port '%s': EAL found %s%s. %s", name,
		n > 0 ? "" : "none", there,
		n > 0 ? "Name the section after one of these numbers or names, or give EAL the device (-a, --vdev)"
		      : "Give it one with --vdev, or bind a NIC (dpdk-devbind.py) and allow it with -a");
}

/* Ask the kernel about an interface. */
static int
kernel_ask(const char *ifname, unsigned long what, struct ifreq *req)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), ret;

	if (fd < 0)
		return -1;
	rte_strscpy(req->ifr_name, ifname, sizeof(req->ifr_name));
	ret = ioctl(fd, what, req);
	close(fd);
	return ret;
}

int
port_kernel_flags(const char *ifname)
{
	struct ifreq req = {0};

	return kernel_ask(ifname, SIOCGIFFLAGS, &req) < 0 ? -1 : (uint16_t)req.ifr_flags;
}

/* MTU of a kernel interface, 0 if it is not known. */
static uint16_t
kernel_mtu(const char *ifname)
{
	struct ifreq req = {0};

	if (kernel_ask(ifname, SIOCGIFMTU, &req) < 0 || req.ifr_mtu <= 0)
		return 0;
	return req.ifr_mtu > UINT16_MAX ? UINT16_MAX : (uint16_t)req.ifr_mtu;
}

uint16_t
pbox_port_kernel_mtu(const struct pbox_port *p)
{
	return p->dev.kernel_if[0] != '\0' ? kernel_mtu(p->dev.kernel_if) : 0;
}

static const char *
device_args(const struct rte_device *dev)
{
	const struct rte_devargs *da = dev != NULL ? rte_dev_devargs(dev) : NULL;

	return da != NULL && da->args != NULL ? da->args : "";
}

/* AF_PACKET cuts what is longer than its frames, silently, and no call returns their size. */
static void
af_packet_frames(struct pbox_port_device *d, const struct rte_device *dev)
{
	const char *at = strstr(device_args(dev), "framesz=");
	unsigned long framesz = at != NULL ? strtoul(at + 8, NULL, 0) : AF_PACKET_FRAMESZ;

	if (framesz <= AF_PACKET_RX_SPACE || framesz > UINT32_MAX)
		return; /* the driver says what it thinks of that */
	d->max_frame = (uint32_t)framesz - AF_PACKET_RX_SPACE;
	d->min_buffer = (uint32_t)framesz - AF_PACKET_HEADER;
}

/* XDP puts a header of its own before a frame, and a buffer with all that belongs to it must not be
 * larger than a page. */
static void
af_xdp_frames(struct pbox_port_device *d, unsigned mtu)
{
	const uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE);
	uint32_t room = page;

	while (rte_mempool_calc_obj_size(PORT_MBUF_SIZE(room), 0, NULL) > page)
		room -= 8;
	d->max_buffer = room - RTE_PKTMBUF_HEADROOM;
	d->max_frame = d->max_buffer - XDP_HEADROOM;
	d->min_buffer = mtu + RTE_ETHER_HDR_LEN + XDP_HEADROOM;
}

static void
kernel_side(struct pbox_port_device *d, const struct rte_eth_dev_info *info)
{
	if (info->if_index > 0 && if_indextoname(info->if_index, d->kernel_if) != NULL)
		d->mtu_kernel = kernel_mtu(d->kernel_if);
	if (strcmp(d->driver, "net_af_packet") == 0)
		af_packet_frames(d, info->device);
}

static void
offloads(struct pbox_port_device *d, const struct rte_eth_dev_info *info)
{
	uint64_t tx = info->tx_offload_capa | info->tx_queue_offload_capa;

	d->rx_ip_checksum = (info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_IPV4_CKSUM) != 0;
	d->rx_udp_checksum = (info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_UDP_CKSUM) != 0;
	d->tx_segments = (tx & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
	d->rss = (info->flow_type_rss_offloads &
			 (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_IPV4)) != 0;
	d->burst = (uint16_t)RTE_MIN(
		RTE_MAX((unsigned)info->default_txportconf.burst_size, (unsigned)PBOX_PORT_BURST),
		(unsigned)PBOX_PORT_BURST_MAX);
	d->lsc = (*info->dev_flags & RTE_ETH_DEV_INTR_LSC) != 0;
}

/* Would DPDK take this MTU? The overhead is computed as ethdev does. */
static bool
mtu_fits(const struct rte_eth_dev_info *info, unsigned mtu)
{
	uint32_t overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;

	if (info->max_mtu != UINT16_MAX && info->max_rx_pktlen > info->max_mtu)
		overhead = info->max_rx_pktlen - info->max_mtu;
	return mtu <= info->max_mtu && mtu >= info->min_mtu &&
	       mtu + overhead <= info->max_rx_pktlen;
}

/* TAP gives the device the address of its kernel interface, which is another host to us: between
 * two hosts of one address nothing is answered, and no bridge forwards to them. It hands over all
 * frames that the kernel sends, whatever their destination. With remote= it is that interface. */
static void
tap_mac(struct pbox_port *p)
{
	struct rte_eth_dev_info info;

	if (strcmp(p->dev.driver, "net_tap") == 0 && rte_eth_dev_info_get(p->conf.id, &info) == 0 &&
		strstr(device_args(info.device), "remote=") == NULL)
		p->nif.mac[5] ^= 1;
}

void
port_mac(struct pbox_port *p)
{
	struct rte_ether_addr mac = {0};

	if (rte_eth_macaddr_get(p->conf.id, &mac) != 0 || rte_is_zero_ether_addr(&mac)) {
		rte_eth_random_addr(mac.addr_bytes);
		port_note(p, "it has no MAC address: it gets one at random");
	}
	memcpy(p->nif.mac, &mac, sizeof(p->nif.mac));
	tap_mac(p);
}

int
port_device(struct pbox_port *p, struct rte_eth_dev_info *info, struct pbox_error *err)
{
	struct pbox_port_device *d = &p->dev;
	uint16_t id = p->conf.id, mtu = 0;
	int ret;

	rte_strscpy(d->name, pbox_port_name(id), sizeof(d->name));
	ret = rte_eth_dev_info_get(id, info);
	if (ret != 0)
		return pbox_fail(err, -ret, PORT_FMT ": its driver says nothing about it: %s",
			PORT_ARGS(p), strerror(-ret));
	rte_strscpy(d->driver, info->driver_name, sizeof(d->driver));
	d->node = rte_eth_dev_socket_id(id);
	d->max_rxq = info->max_rx_queues;
	d->max_txq = info->max_tx_queues;
	d->min_buffer = info->min_rx_bufsize;
	if (d->min_buffer > UINT16_MAX)
		d->min_buffer = 0; /* "no limit" of some drivers */
	kernel_side(d, info);
	offloads(d, info);
	p->nif = (struct pbox_net_if){.ip = p->conf.ip, .prefix_len = p->conf.prefix_len};
	if (rte_eth_macaddr_get(id, (struct rte_ether_addr *)p->nif.mac) == 0)
		tap_mac(p); /* for --check */
	if (rte_eth_dev_get_mtu(id, &mtu) != 0 || mtu == 0)
		mtu = RTE_ETHER_MTU;
	p->mtu = p->conf.mtu != 0 ? p->conf.mtu : d->mtu_kernel != 0 ? d->mtu_kernel : mtu;
	if (strcmp(d->driver, "net_af_xdp") == 0)
		af_xdp_frames(d, p->mtu);
	d->mtu_set = mtu_fits(info, p->mtu) ? p->mtu : 0;
	return 0;
}
