/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>

#include "port_priv.h"

int
port_check_mtu(struct pbox_port *p, struct pbox_error *err)
{
	const struct pbox_port_device *d = &p->dev;
	unsigned frame = p->mtu + RTE_ETHER_HDR_LEN, framesz;

	if (p->mtu < 576)
		return pbox_fail(err, EINVAL, PORT_FMT " has an MTU of %u: set mtu in %s",
			PORT_ARGS(p), p->mtu, p->conf.where);
	if (d->max_buffer > 0 && frame > d->max_frame)
		return pbox_fail(err, EINVAL,
			PORT_FMT
			" takes an MTU of %u at most, not %u: set mtu in %s and on the interface",
			PORT_ARGS(p), d->max_frame - RTE_ETHER_HDR_LEN, p->mtu, p->conf.where);
	if (d->max_frame > 0 && frame > d->max_frame) {
		framesz = RTE_ALIGN_CEIL(frame + 66, 512u);
		return pbox_fail(err, EINVAL,
			PORT_FMT
			" cuts frames at %u bytes, and MTU %u needs %u: give the device framesz=%u,blocksz=%u, or set mtu = 1500 in %s",
			PORT_ARGS(p), d->max_frame, p->mtu, frame, framesz, 4 * framesz,
			p->conf.where);
	}
	if (d->mtu_kernel != 0 && d->mtu_kernel < p->mtu)
		port_note(p,
			"MTU %u is more than interface %s has (%u): ip link set %s mtu %u, or set mtu = %u in %s",
			p->mtu, d->kernel_if, d->mtu_kernel, d->kernel_if, p->mtu, d->mtu_kernel,
			p->conf.where);
	else if (d->mtu_set == 0 && d->mtu_kernel == 0)
		port_note(p,
			"MTU %u cannot be set through DPDK: set it where the device comes from (ip link set ... mtu %u)",
			p->mtu, p->mtu);
	return 0;
}
