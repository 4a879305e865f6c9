/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Endpoints of a map index what a worker has of a box, also of one that it has no session with. */

#include <stdlib.h>

#include "unit.h"
#include "worker_impl.h"

const char unit_suite[] = "worker: numbers of a map";

static struct pbox_worker w;
static struct session first, second;

/* A map of one chunk at that endpoint; is it taken? */
static bool
takes(uint16_t endpoint)
{
	struct tensor x = {.elements = 64};
	struct pbox_worker_table t = {.n = 1, .tensor = &x};
	struct table_map m = {0};
	struct pbox_mapped h = {.chunks = 1, .frag_elements = 64};
	struct pbox_chunk_entry e = {
		.endpoint = endpoint, .elements = 64, .segments = 1, .segment = {{.elements = 64}}};
	uint8_t page[1400];
	struct pbox_worker_request r = {.answer = page};
	struct pbox_client_error err;
	struct pbox_cursor cur;
	uint32_t count;
	bool taken;

	CU_ASSERT_EQUAL_FATAL(pbox_mapped_begin(page, sizeof(page), &h, &cur), 0);
	CU_ASSERT_EQUAL_FATAL(pbox_mapped_add(page, &cur, &e), 0);
	r.answer_len = (uint16_t)pbox_page_len(page, &cur);
	taken = map_take(&first, &t, &m, &r, &count, &err) == 0;
	CU_ASSERT(!taken || t.chunk[0].endpoint < PBOX_MAX_ENDPOINTS);
	free(t.chunk);
	free(m.first);
	free(m.count);
	free(m.seen.got);
	free(m.segment);
	return taken;
}

static void
test_endpoints(void)
{
	w.box[0] = &first;
	w.box[1] = &second;
	w.boxes = 2;
	first.w = second.w = &w;
	first.endpoints = 2;
	for (unsigned out = 0; out < 2; out++) {
		second.endpoints = out != 0 ? 0 : 2;
		second.out = out != 0;
		for (unsigned box = 0; box < 4; box++)
			for (unsigned k = 0; k < 256; k++)
				CU_ASSERT_EQUAL(takes((uint16_t)(box << 8 | k)),
					box < 2 && k < (box == 1 && out != 0 ? PBOX_MAX_ENDPOINTS
									     : 2));
	}
}

const struct unit_test unit_tests[] = {
	{"endpoints of a map", test_endpoints},
	{NULL, NULL},
};
