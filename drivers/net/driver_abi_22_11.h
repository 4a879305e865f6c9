/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef DRIVER_ABI_22_11_H
#define DRIVER_ABI_22_11_H

/**
 * @file
 * What a virtual Ethernet driver must know of DPDK 22.11 beyond its public headers.
 *
 * Distributions ship the libraries with the driver entry points, but not the headers that go with
 * them (-Denable_driver_sdk=true installs those: driver_sdk.h prefers them). So here is the binary
 * interface of the LTS release 22.11 on 64-bit machines, reduced to what our drivers touch. It is
 * held in place three times: this file compiles for 22.11 alone, the offsets below are asserted,
 * and each driver compares it with the running library before its first port comes up.
 */

#include <assert.h>
#include <pthread.h>
#include <stddef.h>

#include <rte_config.h>
#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_tailq.h>
#include <rte_version.h>

#if RTE_VER_YEAR != 22 || RTE_VER_MONTH != 11
#error "drivers/net needs the driver headers of this DPDK: build it with -Denable_driver_sdk=true"
#endif

/* buses and devices */

struct rte_driver {
	RTE_TAILQ_ENTRY(rte_driver) next;
	const char *name;
	const char *alias;
};

struct rte_device {
	RTE_TAILQ_ENTRY(rte_device) next;
	const char *name;
	const char *bus_info;
	const struct rte_driver *driver;
	const struct rte_bus *bus;
	int numa_node;
	struct rte_devargs *devargs;
};

struct rte_vdev_device {
	RTE_TAILQ_ENTRY(rte_vdev_device) next;
	struct rte_device device;
};

struct rte_vdev_driver {
	RTE_TAILQ_ENTRY(rte_vdev_driver) next;
	struct rte_driver driver;
	int (*probe)(struct rte_vdev_device *dev);
	int (*remove)(struct rte_vdev_device *dev);
	void (*unused[2])(void); /* DMA map and unmap */
	uint32_t drv_flags;
};

void rte_vdev_register(struct rte_vdev_driver *driver);

static inline const char *
rte_vdev_device_name(const struct rte_vdev_device *dev)
{
	return dev->device.name;
}

static inline const char *
rte_vdev_device_args(const struct rte_vdev_device *dev)
{
	return dev->device.devargs != NULL ? dev->device.devargs->args : "";
}

#define RTE_PMD_REGISTER_VDEV(nm, vdrv)           \
	RTE_INIT(vdrvinitfn_##vdrv)               \
	{                                         \
		(vdrv).driver.name = RTE_STR(nm); \
		rte_vdev_register(&(vdrv));       \
	}                                         \
	RTE_PMD_EXPORT_NAME(nm, __COUNTER__)

/* Ethernet devices */

struct rte_eth_dev_data {
	char name[RTE_ETH_NAME_MAX_LEN];
	void **rx_queues;
	void **tx_queues;
	uint16_t nb_rx_queues;
	uint16_t nb_tx_queues;
	struct rte_eth_dev_sriov sriov;
	void *dev_private;
	struct rte_eth_link dev_link;
	struct rte_eth_conf dev_conf;
	uint16_t mtu;
	uint32_t min_rx_buf_size;
	uint64_t rx_mbuf_alloc_failed;
	struct rte_ether_addr *mac_addrs;
	uint64_t mac_pool_sel[RTE_ETH_NUM_RECEIVE_MAC_ADDR];
	struct rte_ether_addr *hash_mac_addrs;
	uint16_t port_id;
	uint8_t flags; /* bits: promiscuous, scattered, all multicast, started, ... */
	uint8_t rx_queue_state[RTE_MAX_QUEUES_PER_PORT];
	uint8_t tx_queue_state[RTE_MAX_QUEUES_PER_PORT];
	uint32_t dev_flags;
	int numa_node;
	struct rte_vlan_filter_conf vlan_filter_conf;
	struct rte_eth_dev_owner owner;
	uint16_t representor_id;
	uint16_t backer_port_id;
	pthread_mutex_t flow_ops_mutex;
} __rte_cache_aligned;

struct rte_eth_dev {
	eth_rx_burst_t rx_pkt_burst;
	eth_tx_burst_t tx_pkt_burst;
	eth_tx_prep_t tx_pkt_prepare;
	eth_rx_queue_count_t rx_queue_count;
	eth_rx_descriptor_status_t rx_descriptor_status;
	eth_tx_descriptor_status_t tx_descriptor_status;
	struct rte_eth_dev_data *data;
	void *process_private;
	const struct eth_dev_ops *dev_ops;
	struct rte_device *device;
	struct rte_intr_handle *intr_handle;
	void *unused[2 + 2 * RTE_MAX_QUEUES_PER_PORT]; /* callbacks */
	enum rte_eth_dev_state state;
	void *security_ctx;
} __rte_cache_aligned;

#define RTE_ETH_QUEUE_STATE_STOPPED 0
#define RTE_ETH_QUEUE_STATE_STARTED 1

struct rte_flow_ops {
	int (*validate)(struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
		const struct rte_flow_item *items, const struct rte_flow_action *actions,
		struct rte_flow_error *error);
	struct rte_flow *(*create)(struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
		const struct rte_flow_item *items, const struct rte_flow_action *actions,
		struct rte_flow_error *error);
	int (*destroy)(
		struct rte_eth_dev *dev, struct rte_flow *flow, struct rte_flow_error *error);
	int (*flush)(struct rte_eth_dev *dev, struct rte_flow_error *error);
	void (*unused4[33])(void);
};

/* the 113 functions of a driver; those that ours leave out count as unused pointers */
struct eth_dev_ops {
	int (*dev_configure)(struct rte_eth_dev *dev);
	int (*dev_start)(struct rte_eth_dev *dev);
	int (*dev_stop)(struct rte_eth_dev *dev);
	int (*dev_set_link_up)(struct rte_eth_dev *dev);
	int (*dev_set_link_down)(struct rte_eth_dev *dev);
	int (*dev_close)(struct rte_eth_dev *dev);
	void (*unused6)(void);
	int (*link_update)(struct rte_eth_dev *dev, int wait);
	void (*unused8)(void);
	int (*promiscuous_enable)(struct rte_eth_dev *dev);
	int (*promiscuous_disable)(struct rte_eth_dev *dev);
	int (*allmulticast_enable)(struct rte_eth_dev *dev);
	int (*allmulticast_disable)(struct rte_eth_dev *dev);
	void (*mac_addr_remove)(struct rte_eth_dev *dev, uint32_t index);
	int (*mac_addr_add)(struct rte_eth_dev *dev, struct rte_ether_addr *addr, uint32_t index,
		uint32_t pool);
	int (*mac_addr_set)(struct rte_eth_dev *dev, struct rte_ether_addr *addr);
	int (*set_mc_addr_list)(struct rte_eth_dev *dev, struct rte_ether_addr *addrs, uint32_t n);
	int (*mtu_set)(struct rte_eth_dev *dev, uint16_t mtu);
	int (*stats_get)(struct rte_eth_dev *dev, struct rte_eth_stats *stats);
	int (*stats_reset)(struct rte_eth_dev *dev);
	int (*xstats_get)(struct rte_eth_dev *dev, struct rte_eth_xstat *stats, unsigned int n);
	int (*xstats_reset)(struct rte_eth_dev *dev);
	int (*xstats_get_names)(
		struct rte_eth_dev *dev, struct rte_eth_xstat_name *names, unsigned int n);
	void (*unused23)(void);
	int (*dev_infos_get)(struct rte_eth_dev *dev, struct rte_eth_dev_info *info);
	void (*unused25[16])(void);
	int (*rx_queue_setup)(struct rte_eth_dev *dev, uint16_t queue, uint16_t descs,
		unsigned int socket, const struct rte_eth_rxconf *conf, struct rte_mempool *mp);
	void (*rx_queue_release)(struct rte_eth_dev *dev, uint16_t queue);
	int (*rx_queue_intr_enable)(struct rte_eth_dev *dev, uint16_t queue);
	int (*rx_queue_intr_disable)(struct rte_eth_dev *dev, uint16_t queue);
	int (*tx_queue_setup)(struct rte_eth_dev *dev, uint16_t queue, uint16_t descs,
		unsigned int socket, const struct rte_eth_txconf *conf);
	void (*tx_queue_release)(struct rte_eth_dev *dev, uint16_t queue);
	void (*unused47[23])(void);
	int (*flow_ops_get)(struct rte_eth_dev *dev, const struct rte_flow_ops **ops);
	void (*unused71[42])(void);
};

struct rte_eth_dev *rte_eth_dev_allocate(const char *name);
struct rte_eth_dev *rte_eth_dev_allocated(const char *name);
void rte_eth_dev_probing_finish(struct rte_eth_dev *dev);
int rte_eth_dev_release_port(struct rte_eth_dev *dev);
int rte_eth_dev_callback_process(
	struct rte_eth_dev *dev, enum rte_eth_event_type event, void *param);

#if defined(RTE_ARCH_X86_64) && RTE_MAX_QUEUES_PER_PORT == 1024
/* taken from a build of 22.11 with its own headers */
static_assert(offsetof(struct rte_vdev_device, device) == 16, "ABI");
static_assert(offsetof(struct rte_device, devargs) == 56, "ABI");
static_assert(sizeof(struct rte_vdev_device) == 80, "ABI");
static_assert(offsetof(struct rte_vdev_driver, probe) == 48, "ABI");
static_assert(sizeof(struct rte_vdev_driver) == 88, "ABI");
static_assert(offsetof(struct rte_eth_dev_data, dev_private) == 96, "ABI");
static_assert(offsetof(struct rte_eth_dev_data, dev_conf) == 112, "ABI");
static_assert(offsetof(struct rte_eth_dev_data, mtu) == 2384, "ABI");
static_assert(offsetof(struct rte_eth_dev_data, mac_addrs) == 2400, "ABI");
static_assert(offsetof(struct rte_eth_dev_data, port_id) == 3440, "ABI");
static_assert(offsetof(struct rte_eth_dev_data, rx_queue_state) == 3443, "ABI");
static_assert(offsetof(struct rte_eth_dev_data, dev_flags) == 5492, "ABI");
static_assert(offsetof(struct rte_eth_dev_data, owner) == 6016, "ABI");
static_assert(offsetof(struct rte_eth_dev_data, backer_port_id) == 6090, "ABI");
static_assert(sizeof(struct rte_eth_dev_data) == 6144, "ABI");
static_assert(offsetof(struct rte_eth_dev, dev_ops) == 64, "ABI");
static_assert(offsetof(struct rte_eth_dev, state) == 16488, "ABI");
static_assert(sizeof(struct rte_eth_dev) == 16512, "ABI");
#endif
#define DRIVER_OP(name) (offsetof(struct eth_dev_ops, name) / sizeof(void (*)(void)))
static_assert(DRIVER_OP(link_update) == 7 && DRIVER_OP(mac_addr_set) == 15, "ABI");
static_assert(DRIVER_OP(mtu_set) == 17 && DRIVER_OP(dev_infos_get) == 24, "ABI");
static_assert(DRIVER_OP(rx_queue_setup) == 41 && DRIVER_OP(tx_queue_setup) == 45, "ABI");
static_assert(DRIVER_OP(rx_queue_intr_enable) == 43 && DRIVER_OP(flow_ops_get) == 70, "ABI");
static_assert(sizeof(struct eth_dev_ops) == 113 * sizeof(void (*)(void)), "ABI");

#endif /* DRIVER_ABI_22_11_H */
