/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Who else on this host has the address of a port: another box on the same interface, or the kernel. */

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "port_priv.h"

#define IFS 64 /* addresses of the kernel that are looked at */

/* An abstract name of this network namespace: it goes with the process, however that ends. */
static socklen_t
claim_name(const struct pbox_port *p, struct sockaddr_un *a)
{
	const uint8_t *ip = (const uint8_t *)&p->nif.ip;
	int n;

	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "pbox/%s/%u.%u.%u.%u",
		p->dev.kernel_if, ip[0], ip[1], ip[2], ip[3]);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* The process that has the name, or 0. */
static int
holder(const struct sockaddr_un *a, socklen_t len)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred who = {0};
	socklen_t size = sizeof(who);

	if (fd < 0)
		return 0;
	if (connect(fd, (const struct sockaddr *)a, len) != 0 ||
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
		who.pid = 0;
	close(fd);
	return who.pid;
}

int
pbox_port_claim(struct pbox_port *p, struct pbox_error *err)
{
	const uint8_t *ip = (const uint8_t *)&p->nif.ip;
	struct sockaddr_un a;
	socklen_t len;
	int fd, pid;

	p->claim = -1;
	if (p->dev.kernel_if[0] == '\0')
		return 0; /* nobody else can have such a device */
	len = claim_name(p, &a);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return 0;
	if (bind(fd, (const struct sockaddr *)&a, len) == 0) {
		if (listen(fd, 1) == 0)
			p->claim = fd;
		else
			close(fd);
		return 0;
	}
	close(fd);
	if (errno != EADDRINUSE)
		return 0;
	pid = holder(&a, len);
	if (pid == 0)
		return pbox_fail(err, EADDRINUSE,
			PORT_FMT
			" has the address %u.%u.%u.%u, and another pbox serves it on interface %s: stop that one, or set another address in %s",
			PORT_ARGS(p), ip[0], ip[1], ip[2], ip[3], p->dev.kernel_if, p->conf.where);
	return pbox_fail(err, EADDRINUSE,
		PORT_FMT
		" has the address %u.%u.%u.%u, and another pbox (process %d) serves it on interface %s: stop that one, or set another address in %s",
		PORT_ARGS(p), ip[0], ip[1], ip[2], ip[3], pid, p->dev.kernel_if, p->conf.where);
}

void
port_unclaim(struct pbox_port *p)
{
	if (p->claim > 0)
		close(p->claim);
	p->claim = -1;
}

bool
pbox_port_kernel_has(const struct pbox_port *p, char ifname[PBOX_PORT_IFNAME])
{
	struct ifreq req[IFS];
	struct ifconf all = {.ifc_len = sizeof(req), .ifc_req = req};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), ret;

	if (fd < 0)
		return false;
	ret = ioctl(fd, SIOCGIFCONF, &all);
	close(fd);
	for (size_t i = 0; ret == 0 && i < (size_t)all.ifc_len / sizeof(req[0]); i++) {
		struct sockaddr_in in;

		memcpy(&in, &req[i].ifr_addr, sizeof(in));
		if (in.sin_family != AF_INET || in.sin_addr.s_addr != p->nif.ip)
			continue;
		memcpy(ifname, req[i].ifr_name, PBOX_PORT_IFNAME);
		ifname[PBOX_PORT_IFNAME - 1] = '\0';
		return true;
	}
	return false;
}
