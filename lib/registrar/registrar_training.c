/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What workers by plan train with (section 15 of the protocol): one with other data would compute other slots. */

#include "registrar_impl.h"

bool
registrar_trains_alike(struct pbox_registrar *r, const struct pbox_frame *f,
	struct registrar_training *k, const struct pbox_work_ask *m)
{
	uint32_t offset = m->trained - m->round;

	if (m->seed == PBOX_WORK_NONE && m->samples == PBOX_WORK_NONE)
		return true;
	if (!k->said && m->trained == PBOX_WORK_UNKNOWN)
		return true;
	if (!k->said) {
		k->said = true;
		k->seed = m->seed;
		k->samples = m->samples;
		k->batch = m->batch;
		k->offset = offset;
		k->first_said = f->hdr.worker;
	}
	if (k->seed != m->seed)
		return registrar_refuse(r, f, PBOX_E_MISMATCH, m->table,
			"seed is %llu here and %llu at worker %u: give all the same",
			(unsigned long long)m->seed, (unsigned long long)k->seed, k->first_said);
	if (k->samples != m->samples)
		return registrar_refuse(r, f, PBOX_E_MISMATCH, m->table,
			"the data has %llu samples here and %llu at worker %u: give all the same data",
			(unsigned long long)m->samples, (unsigned long long)k->samples,
			k->first_said);
	if (k->batch != m->batch)
		return registrar_refuse(r, f, PBOX_E_MISMATCH, m->table,
			"batch_size is %u here and %u at worker %u: give all the same", m->batch,
			k->batch, k->first_said);
	if (m->trained != PBOX_WORK_UNKNOWN && k->offset != offset)
		return registrar_refuse(r, f, PBOX_E_MISMATCH, m->table,
			"trained_rounds is %u before round %u here, and %u at worker %u: begin at the checkpoint of the others",
			m->trained, m->round, m->round + k->offset, k->first_said);
	return true;
}
