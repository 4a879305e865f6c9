/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_ethdev.h>
#include <rte_telemetry.h>

#include "chaos.h"

/* Commands run in telemetry's own thread; chaos_lock keeps ports from closing meanwhile. */

static struct chaos_port *
chaos_find(const char *name)
{
	struct chaos_port *port;
	char *end, other[RTE_ETH_NAME_MAX_LEN];
	unsigned long id = strtoul(name, &end, 10);

	for (port = chaos_ports; port != NULL; port = port->next) {
		if (*name != '\0' && *end == '\0' && port->port_id == id)
			return port;
		if (rte_eth_dev_get_name_by_port(port->port_id, other) == 0 &&
			strcmp(other, name) == 0)
			return port;
	}
	return NULL;
}

static int
chaos_list(const char *cmd __rte_unused, const char *params __rte_unused, struct rte_tel_data *d)
{
	rte_tel_data_start_array(d, RTE_TEL_INT_VAL);
	pthread_mutex_lock(&chaos_lock);
	for (struct chaos_port *port = chaos_ports; port != NULL; port = port->next)
		rte_tel_data_add_array_int(d, port->port_id);
	pthread_mutex_unlock(&chaos_lock);
	return 0;
}

static void
put_settings(struct rte_tel_data *d, const struct chaos_port *port)
{
	char key[32], value[PBOX_FAULT_VALUE_MAX];

	rte_tel_data_add_dict_int(d, "wrapped_port", port->wrapped);
	snprintf(value, sizeof(value), "%" PRIu64, port->side[PBOX_FAULT_RX].conf.seed);
	rte_tel_data_add_dict_string(d, "seed", value);
	for (int dir = 0; dir < PBOX_FAULT_DIRS; dir++) {
		for (unsigned int i = 0; pbox_fault_settings[i].key != NULL; i++) {
			snprintf(key, sizeof(key), "%s_%s", dir == PBOX_FAULT_RX ? "rx" : "tx",
				pbox_fault_settings[i].key);
			pbox_fault_conf_get(&port->side[dir].conf, i, value, sizeof(value));
			rte_tel_data_add_dict_string(d, key, value);
		}
		snprintf(key, sizeof(key), "%s_target_left", dir == PBOX_FAULT_RX ? "rx" : "tx");
		snprintf(value, sizeof(value), "%" PRIu32,
			__atomic_load_n(&port->side[dir].target_left, __ATOMIC_RELAXED));
		rte_tel_data_add_dict_string(d, key, value);
	}
}

static int
chaos_get(const char *cmd __rte_unused, const char *params, struct rte_tel_data *d)
{
	struct chaos_port *port;

	pthread_mutex_lock(&chaos_lock);
	port = params == NULL ? NULL : chaos_find(params);
	if (port != NULL) {
		rte_tel_data_start_dict(d);
		put_settings(d, port);
	}
	pthread_mutex_unlock(&chaos_lock);
	return port != NULL ? 0 : -EINVAL;
}

static int
set_one(void *ctx, const char *key, const char *value, char *why, size_t n)
{
	return chaos_port_set(ctx, key, value, why, n);
}

/* PORT,KEY=VALUE[,KEY=VALUE]...: all or, from the first wrong one on, none. */
static int
chaos_set(const char *cmd __rte_unused, const char *params, struct rte_tel_data *d)
{
	char text[2 * PBOX_FAULT_VALUE_MAX], why[256] = "no such port", *rest;
	struct chaos_port *port;
	int ret = -EINVAL;

	if (params == NULL || strlen(params) >= sizeof(text))
		return -EINVAL;
	memcpy(text, params, strlen(params) + 1);
	rest = text + strcspn(text, ",");
	if (*rest != '\0')
		*rest++ = '\0';
	pthread_mutex_lock(&chaos_lock);
	port = chaos_find(text);
	if (port != NULL)
		ret = pbox_fault_conf_each(rest, set_one, port, why, sizeof(why));
	rte_tel_data_start_dict(d);
	if (ret == 0)
		put_settings(d, port);
	else
		rte_tel_data_add_dict_string(d, "error", why);
	pthread_mutex_unlock(&chaos_lock);
	return 0;
}

RTE_INIT(chaos_telemetry)
{
	rte_telemetry_register_cmd(
		"/net_chaos/list", chaos_list, "Ports that inject faults. No parameters.");
	rte_telemetry_register_cmd(
		"/net_chaos/get", chaos_get, "Settings of a port. Parameters: port id or name");
	rte_telemetry_register_cmd("/net_chaos/set", chaos_set,
		"Change settings. Parameters: port id or name, then key=value[,key=value]...");
}
