/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/ethtool.h>
#include <linux/sockios.h>

#include <rte_string_fns.h>

#include "packet.h"

RTE_LOG_REGISTER(packet_logtype, pmd.net.packet, NOTICE);

static_assert(PACKET_IFNAME == IFNAMSIZ, "names of the kernel");

/* Ask the kernel about an interface: 0 or a negative errno. */
static int
packet_iface_ask(const char *ifname, unsigned long what, struct ifreq *req)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), ret;

	if (fd < 0)
		return -errno;
	rte_strscpy(req->ifr_name, ifname, sizeof(req->ifr_name));
	ret = ioctl(fd, what, req) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

int
packet_iface_index(const char *ifname)
{
	struct ifreq req = {0};
	int ret = packet_iface_ask(ifname, SIOCGIFINDEX, &req);

	return ret != 0 ? ret : req.ifr_ifindex;
}

int
packet_iface_mac(const char *ifname, struct rte_ether_addr *mac)
{
	struct ifreq req = {0};
	int ret = packet_iface_ask(ifname, SIOCGIFHWADDR, &req);

	if (ret == 0)
		memcpy(mac->addr_bytes, req.ifr_hwaddr.sa_data, sizeof(mac->addr_bytes));
	return ret;
}

int
packet_iface_mtu(const char *ifname)
{
	struct ifreq req = {0};
	int ret = packet_iface_ask(ifname, SIOCGIFMTU, &req);

	return ret != 0 ? ret : RTE_MIN(req.ifr_mtu, (int)UINT16_MAX);
}

int
packet_iface_flags(const char *ifname)
{
	struct ifreq req = {0};
	int ret = packet_iface_ask(ifname, SIOCGIFFLAGS, &req);

	return ret != 0 ? ret : (int)(uint16_t)req.ifr_flags;
}

bool
packet_iface_virtual(const char *ifname)
{
	struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
	struct ifreq req = {.ifr_data = (char *)&info};

	/* hardware hangs on a bus */
	return packet_iface_ask(ifname, SIOCETHTOOL, &req) == 0 && info.bus_info[0] == '\0';
}
