/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PORT_PRIV_H
#define PORT_PRIV_H

#include <rte_ethdev.h>

#include "pbox_port.h"

/* device.c: what it is and can, for the wanted MTU (0: what it has). */
int port_device(struct pbox_port *p, struct rte_eth_dev_info *info, struct pbox_error *err);
/* Flags of a kernel interface (IFF_...), -1 if they are not known. */
int port_kernel_flags(const char *ifname);
/* Its MAC address, into nif. */
void port_mac(struct pbox_port *p);
/* check.c: does kernel interface, frame size and MTU fit together; adds notes or fails. */
int port_check_mtu(struct pbox_port *p, struct pbox_error *err);
/* address.c */
void port_unclaim(struct pbox_port *p);
/* pool.c: data_room, n_mbufs and pool_bytes; then the pools */
int port_pools_plan(struct pbox_port *p, struct pbox_error *err);
int port_pools(struct pbox_port *p, struct pbox_error *err);
/** Is there a driver for them? */
int port_pool_drivers(struct pbox_error *err);
/* steer.c: 0, or an error where the operator insists on it. */
int port_steer(struct pbox_port *p, struct pbox_error *err);
void port_steer_stop(struct pbox_port *p);
/* link.c */
void port_link_watch(struct pbox_port *p);
void port_link_unwatch(struct pbox_port *p);

/* port.c */
void port_note(struct pbox_port *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Bytes of a packet buffer, its head included. */
#define PORT_MBUF_SIZE(room) ((uint32_t)sizeof(struct rte_mbuf) + PBOX_PORT_MBUF_PRIV + (room))

/* "port 0 (net_tap0)" */
#define PORT_FMT     "port %u (%s)"
#define PORT_ARGS(p) (p)->conf.id, (p)->dev.name

#endif /* PORT_PRIV_H */
