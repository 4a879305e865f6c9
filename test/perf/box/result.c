/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include "bench.h"

static const char *const format_name[] = {"", "fp32", "bf16", "fp16"};

static void
print_json(const struct result *r, bool first)
{
	const struct options *o = &r->o;

	printf("%s{\"fragment\":%u,\"workers\":%u,\"jobs\":%u,\"model\":%llu,\"optimiser\":\"%s\",\"format\":\"%s\",\"resident\":\"%s\",\"resident_bytes\":%.0f,\"train\":%u,\"shuffle\":%s,\"mode\":\"%s\",\"kernels\":\"%s\",\"huge_pages\":%s,\"runs\":%u,\"packets\":%llu,\"slots\":%.0f,\"rx_desc\":%.0f,\"window\":%.0f",
		first ? "\n" : ",\n", o->fragment, o->workers, o->jobs,
		(unsigned long long)o->model, pbox_optimiser_name(o->optimiser),
		format_name[o->format], o->resident_name, r->resident_bytes, o->train,
		o->shuffle ? "true" : "false", o->lockstep ? "lockstep" : "two cores", r->kernel,
		r->huge ? "true" : "false", r->n_runs, (unsigned long long)r->packets, r->slots,
		r->rx_desc, r->window);
	printf(",\n \"ok\":%s,\"why\":\"%s\",\"gbit_per_s\":%.2f,\"packets_per_s\":%.0f,\"kernel_gbit_per_s\":%.2f,\"kernel_share\":%.4f,\"checked_kernel_share\":%.4f,\"busy_share\":%.3f,\"ns_per_fragment\":%.1f,\"tsc_per_fragment\":%.1f,\"cycles_per_fragment\":%.1f,\"bytes_per_cycle\":%.2f,\"kernel_tsc_per_fragment\":%.1f,\"fused_to_sum\":%.3f,\"tsc_ghz\":%.3f,\"core_ghz\":%.3f",
		r->ok ? "true" : "false", r->why, r->gbit, r->mpps * 1e6, r->kernel_gbit, r->share,
		r->checked_share, r->busy_share, r->ns_fragment, r->tsc_fragment, r->real_fragment,
		r->real_fragment > 0 ? o->fragment / r->real_fragment : 0, r->kernel_tsc,
		r->optim_ratio, r->tsc_ghz, r->core_ghz);
	if (r->outside >= 0)
		printf(",\n \"stages_tsc\":{\"receive\":%.1f,\"lookup\":%.1f,\"crc\":%.1f,\"engine\":%.1f,\"kernel\":%.1f,\"answer\":%.1f},\"outside_tsc\":%.1f,\"answer_tsc\":%.1f,\"outside_cycles\":%.1f,\"answer_cycles\":%.1f",
			r->receive, r->lookup, r->crc, r->engine, r->sum, r->answer, r->outside,
			r->answer, r->outside * r->core_ghz / r->tsc_ghz,
			r->answer * r->core_ghz / r->tsc_ghz);
	printf(",\n \"copied_bytes\":%llu,\"shared_bytes\":%llu,\"allocations\":%llu,\"verified\":%llu,\"wrong\":%llu,\"folds\":%llu,\"dropped\":%llu}",
		(unsigned long long)r->copied, (unsigned long long)r->shared,
		(unsigned long long)r->allocations, (unsigned long long)r->verified,
		(unsigned long long)r->wrong, (unsigned long long)r->folds,
		(unsigned long long)r->dropped);
}

static void
print_text(const struct result *r, bool first)
{
	const struct options *o = &r->o;

	if (first)
		printf("%5s %5s %4s %8s %8s %5s %8s | %8s %6s %8s %6s %6s %5s | %7s %7s %7s\n",
			"bytes", "workr", "jobs", "model", "optimis", "form", "resident", "Gbit/s",
			"Mpps", "bare", "share", "chkshr", "busy", "ns/frag", "tsc", "cycles");
	printf("%5u %5u %4u %7.1fM %8s %5s %7.1fM | %8.1f %6.2f %8.1f %6.3f %6.3f %5.2f | %7.1f %7.1f %7.1f%s%s%s\n",
		o->fragment, o->workers, o->jobs, (double)o->model / 1048576,
		pbox_optimiser_name(o->optimiser), format_name[o->format],
		r->resident_bytes / 1048576, r->gbit, r->mpps, r->kernel_gbit, r->share,
		r->checked_share, r->busy_share, r->ns_fragment, r->tsc_fragment, r->real_fragment,
		o->lockstep ? " lockstep" : "", r->ok ? "" : "  WRONG: ", r->why);
	if (r->outside >= 0)
		printf("      TSC cycles (real) a fragment: receive %.0f, lookup %.0f, engine %.0f, answer %.0f (%.0f), sum %.0f, crc %.0f; outside kernel and answer %.0f (%.0f)\n",
			r->receive, r->lookup, r->engine, r->answer,
			r->answer * r->core_ghz / r->tsc_ghz, r->sum, r->crc, r->outside,
			r->outside * r->core_ghz / r->tsc_ghz);
	if (r->copied + r->allocations + r->dropped + r->folds > 0)
		printf("      copied %llu bytes, %llu allocations, %llu dropped, %llu folds\n",
			(unsigned long long)r->copied, (unsigned long long)r->allocations,
			(unsigned long long)r->dropped, (unsigned long long)r->folds);
}

void
result_print(const struct result *r, bool json, bool first)
{
	if (json)
		print_json(r, first);
	else
		print_text(r, first);
	fflush(stdout);
}
