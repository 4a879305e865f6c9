/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "pbox_net.h"

const struct pbox_net_verdict_info pbox_net_verdicts[PBOX_NET_VERDICTS] = {
#define INFO(symbol, name, help) {name, help},
	PBOX_NET_ACCEPTS(INFO) PBOX_NET_DROPS(INFO)
#undef INFO
};
