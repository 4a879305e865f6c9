/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testps.h"

#define TENSORS_MAX 65536
#define FORWARD \
	3 /* one part in so many of a round's compute time comes before the first gradient */

/* "4M": bytes of fp32; 0: it is no size */
static uint64_t
size_of(const char *text)
{
	char *end;
	unsigned long long v = strtoull(text, &end, 10);
	unsigned shift = 0;

	if (end == text || !isdigit((unsigned char)text[0]))
		return 0;
	switch (toupper((unsigned char)*end)) {
	case 'K':
		shift = 10;
		break;
	case 'M':
		shift = 20;
		break;
	case 'G':
		shift = 30;
		break;
	case '\0':
		return v;
	default:
		return 0;
	}
	return end[1] == '\0' && v <= UINT64_MAX >> shift ? v << shift : 0;
}

static int
model_add_tensor(struct model *m, const char *name, size_t name_len, uint64_t elements, uint64_t us)
{
	struct tensor *t;

	if (m->n == TENSORS_MAX)
		return -E2BIG;
	if ((m->n & (m->n - 1)) == 0) {
		t = reallocarray(m->tensor, m->n > 0 ? 2 * m->n : 1, sizeof(*t));
		if (t == NULL)
			return -ENOMEM;
		m->tensor = t;
	}
	t = &m->tensor[m->n++];
	*t = (struct tensor){.elements = elements, .compute_us = (uint32_t)us};
	if (name_len >= sizeof(t->name))
		name_len = sizeof(t->name) - 1;
	memcpy(t->name, name, name_len);
	m->elements += elements;
	m->compute_us += us;
	return 0;
}

/* "name,elements" or "name,elements,microseconds"; 1: a heading, a comment or empty */
static int
model_line(struct model *m, const char *text)
{
	size_t name = strcspn(text, ",\n");
	unsigned long long elements, us = 0;
	const char *at = text + name + 1;
	char *end;

	if (text[0] == '#' || text[0] == '\n' || text[0] == '\0')
		return 1;
	if (text[name] != ',')
		return -EINVAL;
	if (!isdigit((unsigned char)*at))
		return m->n == 0 ? 1 : -EINVAL;
	elements = strtoull(at, &end, 10);
	if (*end == ',' && isdigit((unsigned char)end[1]))
		us = strtoull(end + 1, &end, 10);
	if (strchr("\r\n", *end) == NULL || elements > UINT64_C(1) << 40 || us > UINT32_MAX)
		return -EINVAL;
	return model_add_tensor(m, text, name, elements, us);
}

int
model_read(struct model *m, const char *text, struct pbox_error *err)
{
	uint64_t size = size_of(text);
	char buf[512];
	unsigned at = 0;
	FILE *f;
	int ret = 0;

	*m = (struct model){0};
	if (size >= 4)
		return model_add_tensor(m, "model", 5, size / 4, 0);
	f = fopen(text, "re");
	if (f == NULL)
		return pbox_fail(err, errno,
			"model %s: neither a size (64K, 4M, 1G) nor a file that can be read (%s)",
			text, strerror(errno));
	while (ret >= 0 && fgets(buf, sizeof(buf), f) != NULL) {
		at++;
		ret = model_line(m, buf);
	}
	fclose(f);
	if (ret < 0) {
		model_free(m);
		return pbox_fail(err, -ret,
			ret == -EINVAL
				? "model %s line %u: not tensor,elements or tensor,elements,microseconds"
			: ret == -E2BIG ? "model %s line %u: too many tensors"
					: "model %s line %u: out of memory",
			text, at);
	}
	if (m->elements == 0) {
		model_free(m);
		return pbox_fail(err, EINVAL, "model %s: it has no elements", text);
	}
	return 0;
}

void
model_free(struct model *m)
{
	free(m->tensor);
	*m = (struct model){0};
}

/* ---- fragments ------------------------------------------------------------------------------ */

struct order {
	const struct pbox_worker_chunk *chunk;
	uint32_t release_us;
};

static int
by_release(const void *a, const void *b)
{
	const struct order *x = a, *y = b;

	if (x->chunk->endpoint != y->chunk->endpoint)
		return x->chunk->endpoint < y->chunk->endpoint ? -1 : 1;
	if (x->release_us != y->release_us)
		return x->release_us < y->release_us ? -1 : 1;
	return x->chunk->id < y->chunk->id ? -1 : 1;
}

/* Gradients become ready from the last tensor to the first, after the forward pass. */
static uint32_t *
release_times(const struct model *m, const struct testps_load *load)
{
	uint64_t total = load->profile ? m->compute_us : load->compute_us, done = 0;
	uint32_t *us = calloc(m->n, sizeof(*us));

	for (unsigned i = m->n; us != NULL && i-- > 0;) {
		uint64_t own = load->profile
				       ? m->tensor[i].compute_us
				       : (uint64_t)((double)total * ((double)m->tensor[i].elements /
									    (double)m->elements));

		done += own;
		us[i] = (uint32_t)(total / FORWARD + done - done / FORWARD);
	}
	return us;
}

static uint16_t
length_of(struct plan *p, uint32_t elements)
{
	unsigned i = 0;

	while (i < p->n_lengths && p->length[i] != elements)
		i++;
	if (i == p->n_lengths)
		p->length[p->n_lengths++] = (uint16_t)elements;
	return (uint16_t)i;
}

static uint32_t
model_fragments_of(const struct plan *p, uint32_t elements)
{
	return (elements + p->frag_elements - 1) / p->frag_elements;
}

static void
cut(struct plan *p, const struct order *o, uint32_t chunks)
{
	uint32_t n = 0;
	uint64_t at = 0;

	for (uint32_t i = 0; i < chunks; i++) {
		const struct pbox_worker_chunk *c = o[i].chunk;
		uint32_t frags = model_fragments_of(p, c->elements);

		p->chunk_first[c->id - p->first_chunk] = n;
		for (uint32_t k = 0; k < frags; k++) {
			uint32_t left = c->elements - k * p->frag_elements;
			uint32_t elements = left < p->frag_elements ? left : p->frag_elements;

			p->f[n++] = (struct fragment){.chunk = c->id,
				.frag = (uint16_t)k,
				.release_us = o[i].release_us,
				.elements = (uint16_t)elements,
				.length = length_of(p, elements),
				.endpoint = c->endpoint,
				.at = at};
			at += (elements + 15) & ~15u; /* lines of the cache */
			p->first[c->endpoint + 1] = n;
		}
	}
	p->elements = at;
	for (unsigned e = 1; e <= p->endpoints; e++)
		if (p->first[e] < p->first[e - 1])
			p->first[e] = p->first[e - 1];
}

int
plan_make(struct plan *p, const struct map *map, unsigned endpoints, const struct model *m,
	const struct testps_load *load, struct pbox_error *err)
{
	uint32_t chunks = map->info.chunks, *release = release_times(m, load);
	struct order *o = calloc(chunks, sizeof(*o));

	*p = (struct plan){.chunks = chunks,
		.frag_elements = map->info.frag_elements,
		.endpoints = endpoints,
		.map_epoch = map->info.map_epoch,
		.round = map->info.base,
		.first_chunk = chunks > 0 ? map->chunk[0].id : 0};
	for (uint32_t i = 0; i < chunks; i++)
		p->n += model_fragments_of(p, map->chunk[i].elements);
	p->f = calloc(p->n, sizeof(*p->f));
	p->chunk_first = calloc(chunks, sizeof(*p->chunk_first));
	p->length = calloc(p->frag_elements + 1, sizeof(*p->length));
	if (release == NULL || o == NULL || p->f == NULL || p->chunk_first == NULL ||
		p->length == NULL) {
		free(release);
		free(o);
		plan_free(p);
		return pbox_fail(err, ENOMEM, "no memory for a map of %u chunks", chunks);
	}
	for (uint32_t i = 0; i < chunks; i++) {
		/* it is ready with the last of its tensors, which is the first of them */
		o[i] = (struct order){
			.chunk = &map->chunk[i], .release_us = release[map->chunk[i].tensor]};
		p->timed |= o[i].release_us > 0;
	}
	qsort(o, chunks, sizeof(*o), by_release);
	cut(p, o, chunks);
	free(release);
	free(o);
	return 0;
}

int
plan_reflected(struct plan *p, uint32_t frag_elements, const struct model *m,
	const struct testps_load *load, struct pbox_error *err)
{
	uint32_t each = frag_elements * (8192 / frag_elements > 0 ? 8192 / frag_elements : 1);
	uint64_t chunks = (m->elements + each - 1) / each;
	struct map map = {.info = {.chunks = (uint32_t)chunks,
				  .frag_elements = frag_elements,
				  .map_epoch = 1}};
	int ret;

	if (chunks > 1u << 20)
		return pbox_fail(err, E2BIG, "the model is too large for a reflecting peer");
	map.chunk = calloc(chunks, sizeof(*map.chunk));
	if (map.chunk == NULL)
		return pbox_fail(err, ENOMEM, "no memory for a map");
	for (uint64_t i = 0; i < chunks; i++) {
		uint64_t left = m->elements - i * each;

		map.chunk[i] = (struct pbox_worker_chunk){
			.id = (uint32_t)i, .elements = left < each ? (uint32_t)left : each};
	}
	ret = plan_make(p, &map, 1, m, load, err);
	free(map.chunk);
	return ret;
}

void
plan_free(struct plan *p)
{
	free(p->f);
	free(p->chunk_first);
	free(p->length);
	*p = (struct plan){0};
}
