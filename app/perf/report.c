/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <string.h>

#include <pbox_wire.h>

#include "perf.h"

/* Goodput counts element bytes against the time spent inside rounds: making and checking data
 * takes none of it. */

static double
round_bits(const struct perf *p, unsigned format)
{
	return 8.0 * (double)pbox_payload_bytes(format, p->m.elements);
}

static double
gbps(double bits, uint64_t rounds, uint64_t ns)
{
	return ns > 0 ? bits * (double)rounds / (double)ns : 0;
}

void
report_start(const struct perf *p)
{
	const struct options *o = &p->o;

	if (o->json)
		return;
	printf("pbox-perf %s: job '%s' at %s, %u of %u workers here, %u tensor%s, %llu elements (%.1f MB), %s\n",
		pbox_client_version(), o->job, o->box, o->local, o->workers, p->m.n,
		p->m.n == 1 ? "" : "s", (unsigned long long)p->m.elements,
		(double)pbox_payload_bytes(o->push_format, p->m.elements) / 1e6,
		o->optimiser != 0 ? pbox_optimiser_name(o->optimiser) : pbox_op_name(o->op));
	printf("push %s, pull %s, %s\n", pbox_format_name(o->push_format),
		pbox_format_name(o->pull_format),
		o->check == CHECK_ALL     ? "every element of every round is checked"
		: o->check == CHECK_FIRST ? "the first round is checked"
					  : "nothing is checked");
	if (!o->quiet)
		printf("%16s  %9s  %12s  %10s  %8s  %8s\n", "interval", "rounds/s", "Gbit/s/way",
			"ms/round", "repeated", "probes");
	fflush(stdout);
}

static double
rate(uint64_t rounds, uint64_t ns)
{
	return ns > 0 ? (double)rounds * 1e9 / (double)ns : 0;
}

/* Digits after the point of a rate: slow rounds show more than 0.0. */
static int
digits(double rate)
{
	return rate < 1 ? 4 : rate < 10 ? 2 : 1;
}

void
report_interval(struct perf *p, double from, double to, uint64_t *seen)
{
	uint64_t rounds = 0, busy = 0, repeated = 0, probes = 0;
	const struct worker *w = p->w;

	for (unsigned i = 0; i < p->o.local; i++) {
		rounds += atomic_load(&w[i].rounds);
		busy += atomic_load(&w[i].busy_ns);
		repeated += atomic_load(&w[i].retransmitted);
		probes += atomic_load(&w[i].probes);
	}
	if (!p->o.json && !p->o.quiet && rounds > seen[0]) {
		double n = (double)(rounds - seen[0]), ns = (double)(busy - seen[1]);

		printf("%6.2f-%6.2f s   %9.*f  %12.3f  %10.3f  %8llu  %8llu\n", from, to,
			digits(n / p->o.local / (to - from)), n / p->o.local / (to - from),
			p->o.local * round_bits(p, p->o.push_format) * n / ns, ns / n / 1e6,
			(unsigned long long)(repeated - seen[2]),
			(unsigned long long)(probes - seen[3]));
		fflush(stdout);
	}
	seen[0] = rounds;
	seen[1] = busy;
	seen[2] = repeated;
	seen[3] = probes;
}

struct total {
	uint32_t hist[HIST_BUCKETS];
	uint64_t rounds, busy, repeated, probes, checked, mismatches, duplicates, tx, useful;
	unsigned unchecked;
	double push, pull;
};

static void
add_up(const struct perf *p, struct total *t)
{
	memset(t, 0, sizeof(*t));
	for (unsigned i = 0; i < p->o.local; i++) {
		const struct worker *w = &p->w[i];
		uint64_t rounds = atomic_load(&w->rounds), busy = atomic_load(&w->busy_ns);

		for (unsigned k = 0; k < HIST_BUCKETS; k++)
			t->hist[k] += w->hist[k];
		t->rounds += rounds;
		t->busy += busy;
		t->repeated += w->stats.retransmitted_frames - w->begin.retransmitted_frames;
		t->probes += w->stats.probes - w->begin.probes;
		t->duplicates += w->stats.rx_duplicates - w->begin.rx_duplicates;
		t->tx += w->stats.tx_bytes - w->begin.tx_bytes;
		t->useful += w->stats.useful_tx_bytes - w->begin.useful_tx_bytes;
		t->checked += w->checked;
		t->mismatches += w->mismatches;
		t->unchecked = w->unchecked > t->unchecked ? w->unchecked : t->unchecked;
		t->push += gbps(round_bits(p, p->o.push_format), rounds, busy);
		t->pull += gbps(round_bits(p, p->o.pull_format), rounds, busy);
	}
}

static void
print_unchecked(const struct perf *p, const struct worker *w)
{
	bool optimiser = p->o.optimiser != PBOX_OPT_NONE;
	char of[80] = "";

	if (w->lost_residuals || (pbox_format_is_block(p->o.push_format) && w->before > 0)) {
		fprintf(stderr,
			"pbox-perf: worker %u: %u rounds could not be checked: %s, and with it went what error feedback had kept\n",
			w->number, w->unchecked,
			w->lost_residuals ? "the box has ended the session or was started again"
					  : "an earlier process of this worker has ended");
		return;
	}
	if (optimiser && w->before > 0) {
		fprintf(stderr,
			"pbox-perf: worker %u: %u rounds could not be checked: the parameters stem from rounds before it came\n",
			w->number, w->unchecked);
		return;
	}
	if (w->contributors > 0)
		snprintf(of, sizeof(of), " (it had those of %u of %u %s)", w->contributors,
			perf_slots(&p->o), p->o.slots != 0 ? "slots" : "workers");
	fprintf(stderr,
		"pbox-perf: worker %u: %u rounds could not be checked: from the first of them on %s%s: a worker has died, left or was silent, and the job's policy is shrink%s\n",
		w->number, w->unchecked,
		optimiser ? "the parameters do not have the contributions of all"
		: data_varies(&p->o)
			? "results do not have the contributions of all, or of different rounds"
			: "results do not have the contributions of all",
		of,
		data_varies(&p->o)
			? "; with --run (a text, the same for all workers) results that have those of all are checked again"
			: "");
}

static void
print_failures(const struct perf *p)
{
	for (unsigned i = 0; i < p->o.local; i++) {
		const struct worker *w = &p->w[i];

		if (w->code != EXIT_GOOD)
			fprintf(stderr, "pbox-perf: worker %u: %s\n",
				w->c != NULL       ? w->number
				: p->o.worker >= 0 ? (unsigned)p->o.worker + i
						   : i,
				w->err.text);
		if (w->before > 0)
			fprintf(stderr,
				"pbox-perf: worker %u: went on in the run '%s' after its round %u\n",
				w->number, p->o.run, w->before);
		if (w->unchecked > 0)
			print_unchecked(p, w);
		if (w->mismatches > 0)
			fprintf(stderr,
				"pbox-perf: worker %u: %llu wrong elements; the first: round %u, element %llu is %.9g, should be %.9g; the largest difference is %g\n",
				w->number, (unsigned long long)w->mismatches, w->first_bad_round,
				(unsigned long long)w->first_bad, (double)w->first_got,
				(double)w->first_want, w->largest_off);
	}
}

static void
print_table(const struct perf *p, const struct total *t)
{
	printf("\n%-7s %7s %11s %11s %9s %9s %9s %9s %8s %7s\n", "worker", "rounds", "push Gbit/s",
		"pull Gbit/s", "rounds/s", "p50 ms", "p99 ms", "p99.9 ms", "repeated", "probes");
	for (unsigned i = 0; i < p->o.local; i++) {
		const struct worker *w = &p->w[i];
		uint64_t n = atomic_load(&w->rounds), ns = atomic_load(&w->busy_ns);

		printf("%-7u %7llu %11.3f %11.3f %9.*f %9.3f %9.3f %9.3f %8llu %7llu\n", w->number,
			(unsigned long long)n, gbps(round_bits(p, p->o.push_format), n, ns),
			gbps(round_bits(p, p->o.pull_format), n, ns), digits(rate(n, ns)),
			rate(n, ns), hist_percentile(w->hist, 0.5) / 1e6,
			hist_percentile(w->hist, 0.99) / 1e6, hist_percentile(w->hist, 0.999) / 1e6,
			(unsigned long long)(w->stats.retransmitted_frames -
					     w->begin.retransmitted_frames),
			(unsigned long long)(w->stats.probes - w->begin.probes));
	}
	printf("%-7s %7llu %11.3f %11.3f %9.*f %9.3f %9.3f %9.3f %8llu %7llu\n", "total",
		(unsigned long long)(t->rounds / p->o.local), t->push, t->pull,
		digits(rate(t->rounds, t->busy)), rate(t->rounds, t->busy),
		hist_percentile(t->hist, 0.5) / 1e6, hist_percentile(t->hist, 0.99) / 1e6,
		hist_percentile(t->hist, 0.999) / 1e6, (unsigned long long)t->repeated,
		(unsigned long long)t->probes);
	if (t->unchecked > 0)
		printf("%u rounds not checked; ", t->unchecked);
	printf("checked %llu elements, %llu wrong; sent %.4f bytes per useful one; mtu %u, window %u of %u, rtt %.0f us, gso %s, gro %s",
		(unsigned long long)t->checked, (unsigned long long)t->mismatches,
		t->useful > 0 ? (double)t->tx / (double)t->useful : 0, p->w[0].stats.mtu,
		p->w[0].stats.window, p->w[0].stats.window_max, (double)p->w[0].stats.srtt_ns / 1e3,
		p->w[0].stats.gso_active ? "on" : "off", p->w[0].stats.gro_active ? "on" : "off");
	if (p->o.transport != NULL)
		printf(", %.1f MB sent by reference, %.1f MB copied",
			(double)p->w[0].stats.tx_by_ref / 1e6,
			(double)p->w[0].stats.tx_copied / 1e6);
	putchar('\n');
}

static void
json_string(const char *s)
{
	putchar('"');
	for (; *s != 0; s++)
		if (*s == '"' || *s == '\\')
			printf("\\%c", *s);
		else if ((unsigned char)*s < 32)
			printf("\\u%04x", (unsigned)*s);
		else
			putchar(*s);
	putchar('"');
}

static void
json_worker(const struct perf *p, const struct worker *w)
{
	uint64_t n = atomic_load(&w->rounds), ns = atomic_load(&w->busy_ns);

	printf("{\"worker\": %u, \"rounds\": %llu, \"busy_s\": %.6f, \"push_gbps\": %.4f, \"pull_gbps\": %.4f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f, \"retransmitted\": %llu, \"probes\": %llu, \"duplicates\": %llu, \"tx_bytes\": %llu, \"useful_tx_bytes\": %llu, \"rx_bytes\": %llu, \"checked\": %llu, \"mismatches\": %llu, \"largest_deviation\": %.9g, \"srtt_us\": %.1f, \"held_us\": %.1f, \"window\": %u, \"window_max\": %u, \"mtu\": %u, \"endpoints\": %u, \"gso\": %u, \"gro\": %u, \"tx_by_ref\": %llu, \"tx_copied\": %llu, \"tx_failed\": %llu, \"rx_failed\": %llu, \"error\": ",
		w->number, (unsigned long long)n, (double)ns / 1e9,
		gbps(round_bits(p, p->o.push_format), n, ns),
		gbps(round_bits(p, p->o.pull_format), n, ns), hist_percentile(w->hist, 0.5) / 1e6,
		hist_percentile(w->hist, 0.99) / 1e6, hist_percentile(w->hist, 0.999) / 1e6,
		(unsigned long long)(w->stats.retransmitted_frames - w->begin.retransmitted_frames),
		(unsigned long long)(w->stats.probes - w->begin.probes),
		(unsigned long long)(w->stats.rx_duplicates - w->begin.rx_duplicates),
		(unsigned long long)(w->stats.tx_bytes - w->begin.tx_bytes),
		(unsigned long long)(w->stats.useful_tx_bytes - w->begin.useful_tx_bytes),
		(unsigned long long)(w->stats.rx_bytes - w->begin.rx_bytes),
		(unsigned long long)w->checked, (unsigned long long)w->mismatches,
		isinf(w->largest_off) ? 1e308 : w->largest_off, (double)w->stats.srtt_ns / 1e3,
		w->stats.fragments_done > w->begin.fragments_done
			? (double)(w->stats.held_ns_sum - w->begin.held_ns_sum) /
				  (double)(w->stats.fragments_done - w->begin.fragments_done) / 1e3
			: 0.0,
		w->stats.window, w->stats.window_max, w->stats.mtu, w->stats.endpoints,
		w->stats.gso_active, w->stats.gro_active,
		(unsigned long long)(w->stats.tx_by_ref - w->begin.tx_by_ref),
		(unsigned long long)(w->stats.tx_copied - w->begin.tx_copied),
		(unsigned long long)(w->stats.tx_failed - w->begin.tx_failed),
		(unsigned long long)(w->stats.rx_failed - w->begin.rx_failed));
	json_string(w->code != EXIT_GOOD ? w->err.text : "");
	printf("}");
}

static void
print_json(const struct perf *p, const struct total *t)
{
	printf("{\"version\": ");
	json_string(pbox_client_version());
	printf(", \"box\": ");
	json_string(p->o.box);
	printf(", \"job\": ");
	json_string(p->o.job);
	printf(", \"workers\": %u, \"local\": %u, \"slots\": %u, \"tensors\": %u, \"elements\": %llu, \"push_format\": \"%s\", \"pull_format\": \"%s\", \"op\": \"%s\", \"optimiser\": \"%s\", \"rounds\": %llu, \"rounds_per_s\": %.3f, \"push_gbps\": %.4f, \"pull_gbps\": %.4f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f, \"retransmitted\": %llu, \"probes\": %llu, \"duplicates\": %llu, \"checked\": %llu, \"mismatches\": %llu, \"unchecked_rounds\": %u, \"cpu_s\": %.6f, \"per_worker\": [",
		p->o.workers, p->o.local, perf_slots(&p->o), p->m.n,
		(unsigned long long)p->m.elements, pbox_format_name(p->o.push_format),
		pbox_format_name(p->o.pull_format), pbox_op_name(p->o.op),
		p->o.optimiser != 0 ? pbox_optimiser_name(p->o.optimiser) : "none",
		(unsigned long long)(t->rounds / p->o.local),
		t->busy > 0 ? (double)t->rounds * 1e9 / (double)t->busy : 0, t->push, t->pull,
		hist_percentile(t->hist, 0.5) / 1e6, hist_percentile(t->hist, 0.99) / 1e6,
		hist_percentile(t->hist, 0.999) / 1e6, (unsigned long long)t->repeated,
		(unsigned long long)t->probes, (unsigned long long)t->duplicates,
		(unsigned long long)t->checked, (unsigned long long)t->mismatches, t->unchecked,
		fmax(p->cpu_end - p->cpu_begin, 0));
	for (unsigned i = 0; i < p->o.local; i++) {
		printf("%s", i > 0 ? ", " : "");
		json_worker(p, &p->w[i]);
	}
	printf("]}\n");
}

void
report_end(struct perf *p)
{
	static struct total t;

	add_up(p, &t);
	if (p->o.json)
		print_json(p, &t);
	else if (t.rounds > 0 || t.checked > 0)
		print_table(p, &t);
	fflush(stdout);
	print_failures(p);
}
