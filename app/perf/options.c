/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <pbox_slots.h>
#include <pbox_wire.h>

#include "perf.h"

/* What follows an option, and what its member is. */
enum kind {
	FLAG,      /* nothing; bool */
	TEXT,      /* const char * */
	NUMBER,    /* k, M or G may follow it; unsigned */
	NUMBER_64, /* uint64_t */
	INDEX,     /* int */
	REAL,      /* double */
	SECONDS,   /* a number, alone; unsigned milliseconds */
	TIME,      /* a number, alone or with a unit; double seconds */
	WORD,      /* one of names; unsigned or int */
	SECRET,
	SECRET_FILE,
	FORMATS,
	HELP,
	VERSION,
};

/* From this table come parser, --help and the options of pbox-perf(1). */
struct row {
	const char *name;
	char letter;
	enum kind kind;
	size_t at;
	const char *argument; /* as in --help */
	const char *text;     /* NULL: another spelling of the row above */
	double min, max;
	const char *const *names;
};

#define AT(member) offsetof(struct options, member)

#define LISTED(symbol, number, name, ...) ", " #name
static const char *const ops[] = {PBOX_OPS(PBOX_LIST_NAME) NULL};
static const char *const optimisers[] = {"none", PBOX_OPTIMISERS(PBOX_LIST_NAME) NULL};
static const char *const checks[] = {"all", "first", "none", NULL};
static const char *const switches[] = {"off", "on", NULL};
static const char *const probes[] = {"off", "on", "probe", NULL}; /* the last one is -1 */

/* clang-format off */
static const struct row rows[] = {
	{"Job"},
	{"job", 'j', TEXT, AT(job), "NAME", "the job (required)"},
	{"secret", 's', SECRET, 0, "TEXT", "its secret, or file:PATH, which keeps it out of the list of processes"},
	{"secret-file", 0, SECRET_FILE, 0, "FILE", "its secret is the first line of this file"},
	{"workers", 'w', NUMBER, AT(workers), "N", "workers of the job in all (required)", 1, PBOX_MAX_WORKERS},
	{"worker", 'i', INDEX, AT(worker), "I", "number of the first worker here (default: the box gives it)", 0, PBOX_MAX_WORKERS - 1},
	{"slots", 0, NUMBER, AT(slots), "V", "slots of the job, workers to 4096, the same at all workers: what a round sums is then the same whatever the number of workers (default: each worker is one)", 1, PBOX_MAX_SLOTS},
	{"local", 'l', NUMBER, AT(local), "K", "run K workers here, as threads: I, I+1, ... (default 1)", 1, MAX_LOCAL},
	{"run", 0, TEXT, AT(run), "TEXT", "the run of all workers of this start: one with another text ends that which the job has on the box, also if its workers live. Without, a job that has begun takes nobody before it has ended. With it a worker that was started again alone goes on in the run, whose rounds --rounds counts, and all rounds have the data of the first, so that what it brings is right in each"},
	{"Data"},
	{"elements", 'e', NUMBER_64, AT(elements), "N", "one tensor of N elements (default 1M); k, M, G are powers of 1000", 0, 1e12},
	{"size", 'b', REAL, AT(size), "BYTES", "or: of so many bytes", 1, 1e13},
	{"model", 'm', TEXT, AT(model), "FILE", "or: a list of lines tensor,elements; a header and lines that begin with # are allowed"},
	{"op", 0, WORD, AT(op), "OP", "what a round makes of the contributions: sum (default), mean (default with an optimiser), sample_mean, weighted_mean; with the last two the workers have unequal sample counts", .names = ops},
	{"optimiser", 'O', WORD, AT(optimiser), "NAME", "parameters on the box, and there: none (default)" PBOX_OPTIMISERS(LISTED), .names = optimisers},
	{"optimizer", 0, WORD, AT(optimiser), .names = optimisers},
	{"lr", 0, REAL, AT(hyper.lr), "X", "its learning rate (default 0.01; 0.001 for adam and adamw)", 0, 1e6},
	{"momentum", 0, REAL, AT(hyper.momentum), "X", "of momentum and nesterov (default 0.9)", 0, 1e6},
	{"dampening", 0, REAL, AT(hyper.dampening), "X", "of momentum (default 0)", 0, 1e6},
	{"weight-decay", 0, REAL, AT(hyper.weight_decay), "X", "(default 0; 0.01 for adamw)", 0, 1e6},
	{"beta1", 0, REAL, AT(hyper.beta1), "X", "of adam and adamw (default 0.9)", 0, 1e6},
	{"beta2", 0, REAL, AT(hyper.beta2), "X", "(default 0.999)", 0, 1e6},
	{"eps", 0, REAL, AT(hyper.eps), "X", "(default 1e-8)", 0, 1e6},
	{"format", 'f', FORMATS, 0, "PUSH[,PULL]", "on the wire: fp32 (default)" PBOX_FORMATS_16(LISTED) PBOX_FORMATS_BLOCK(LISTED) "; with int8 and mxfp4, which go both ways, workers and box have error feedback, and the program has fp32"},
	{"per-tensor", 0, FLAG, AT(per_tensor), "", "each tensor is an operation of its own, submitted last first as in a backward pass, the first tensors being the most urgent"},
	{"seed", 0, NUMBER_64, AT(seed), "N", "of the data (default 1)", 0, 9e15},
	{"Run"},
	{"rounds", 'r', NUMBER, AT(rounds), "R", "how many (default 100)", 1, 4e9},
	{"time", 't', TIME, AT(seconds), "S", "or: so long, as 30, 90s, 5m; workers in several processes agree on the last round by a one-element sum"},
	{"duration", 0, TIME, AT(seconds), "S", "the same"},
	{"warmup", 0, NUMBER, AT(warmup), "R", "rounds that are not counted (default 3)", 0, 1e6},
	{"check", 'c', WORD, AT(check), "WHICH", "results of rounds: all (default), first, none; with first and none the data of the first round are sent in all rounds, which is what to use for figures: making and checking data costs processor time", .names = checks},
	{"timeout", 'T', SECONDS, AT(timeout_ms), "S", "of a round, and of declaring (default 30)", 0.001, 4e6},
	{"join-timeout", 0, SECONDS, AT(join_timeout_ms), "S", "of joining (default 10)", 0.001, 4e6},
	{"Network"},
	{"bind", 'B', TEXT, AT(bind), "ADDRESS", "local address to send from"},
	{"mtu", 'M', NUMBER, AT(mtu), "N", "IP MTU (default: the interface's)", 602, 65535},
	{"window", 'W', NUMBER, AT(window), "N", "frames in flight per endpoint (default: what box and socket allow)", 1, 65535},
	{"gso", 0, WORD, AT(gso), "WORD", "trains of segments: on, off or probe (default)", .names = probes},
	{"spin", 0, NUMBER, AT(spin_us), "US", "microseconds of busy polling before sleeping (default 0)", 0, 1e6},
	{"threads", 0, NUMBER, AT(threads), "N", "progress threads of each worker, no more than the box has endpoints (default 0: the CPUs of this process, shared among the local workers)", 0, 64},
	{"lease", 0, SECONDS, AT(lease_ms), "S", "to ask for (default: the box's)", 0.01, 4e6},
	{"keep-copies", 0, WORD, AT(keep_copies), "WORD", "on (default): goes on after a restart of the box; off", .names = switches},
	{"auth", 0, FLAG, AT(auth), "", "refuse a box whose frames have no tags for this job"},
	{"transport", 0, TEXT, AT(transport), "NAME", "what carries the datagrams: udp, kernel sockets (default), or dpdk, a port that this process owns; gradients are then in memory that the port can send from"},
	{"transport-args", 0, TEXT, AT(transport_args), "TEXT", "for it, as pbox_client_dpdk(3) says; %i is replaced by the number of the local worker, from 0: each needs an address of its own, and a port"},
	{"Output"},
	{"interval", 'I', REAL, AT(interval), "S", "seconds between lines (default 1)", 0.05, 1e6},
	{"quiet", 'q', FLAG, AT(quiet), "", "no such lines"},
	{"json", 0, FLAG, AT(json), "", "one JSON object at the end instead of all text"},
	{"help", 'h', HELP, 0, "", "print this page"},
	{"version", 'V', VERSION, 0, "", "print the version"},
};
/* clang-format on */
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static bool
is_heading(const struct row *r)
{
	return r->text == NULL && r->kind == FLAG;
}

static bool
has_argument(const struct row *r)
{
	return r->kind != FLAG && r->kind != HELP && r->kind != VERSION;
}

/* Words from column 29 on, up to 79. */
static void
print_text(const char *text)
{
	int column = 29;

	while (*text != '\0') {
		int n = (int)strcspn(text, " ");

		if (column > 29 && column + 1 + n > 79)
			column = printf("\n%29s", "") - 1;
		else if (column > 29)
			column += printf(" ");
		column += printf("%.*s", n, text);
		text += n + (text[n] == ' ');
	}
	printf("\n");
}

static void
options_print_help(void)
{
	printf("Usage: pbox-perf BOX[:PORT] --job NAME --workers N [options]\n"
	       "Loads and checks a PBox parameter server from this host.\n");
	for (const struct row *r = rows; r < rows + N_ROWS; r++) {
		char left[64], letter[8] = "    ";

		if (is_heading(r))
			printf("\n%s:\n", r->name);
		if (r->text == NULL)
			continue;
		if (r->letter != 0)
			snprintf(letter, sizeof(letter), "-%c, ", r->letter);
		snprintf(left, sizeof(left), "  %s--%s %s", letter, r->name, r->argument);
		printf(strlen(left) < 29 ? "%-29s" : "%s\n%29s", left, "");
		print_text(r->text);
	}
	printf("\nExit status: 0 all good, 1 an element was wrong, 2 usage, 3 could not join or\n"
	       "declare, 4 a round failed or did not end in time.\n");
}

static void __attribute__((noreturn, format(printf, 1, 2))) options_usage(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "pbox-perf: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "; 'pbox-perf --help' lists the options\n");
	exit(EXIT_USAGE);
}

static double
options_number(const char *name, const char *text, double min, double max)
{
	char *end;
	double v = strtod(text, &end);

	if (*end != 0 && end[1] == 0)
		switch (*end) {
		case 'k':
			v *= 1e3;
			end++;
			break;
		case 'M':
			v *= 1e6;
			end++;
			break;
		case 'G':
			v *= 1e9;
			end++;
			break;
		default:
			break;
		}
	if (end == text || *end != 0 || !(v >= min && v <= max))
		options_usage("--%s %s: a number from %g to %g is wanted", name, text, min, max);
	return v;
}

static unsigned
options_choice(const char *name, const char *text, const char *const *names)
{
	char list[128] = "";

	for (unsigned i = 0; names[i] != NULL; i++) {
		if (strcasecmp(text, names[i]) == 0)
			return i;
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
			i > 0 ? ", " : "", names[i]);
	}
	options_usage("--%s %s: one of %s is wanted", name, text, list);
}

static unsigned
options_format_of(const char *text)
{
#define NAMED(symbol, number, name, ...)    #name,
#define NUMBERED(symbol, number, name, ...) number,
	static const char *const names[] = {PBOX_FORMATS(NAMED) PBOX_FORMATS_BLOCK(NAMED) NULL};
	static const unsigned numbers[] = {PBOX_FORMATS(NUMBERED) PBOX_FORMATS_BLOCK(NUMBERED)};

	return numbers[options_choice("format", text, names)];
}

static void
parse_formats(struct options *o, const char *arg)
{
	char copy[32];
	char *comma;

	snprintf(copy, sizeof(copy), "%s", arg);
	comma = strchr(copy, ',');
	if (comma != NULL)
		*comma++ = 0;
	o->push_format = options_format_of(copy);
	o->pull_format = comma != NULL ? options_format_of(comma) : o->push_format;
}

static char *
options_read_secret(const char *path)
{
	FILE *f = fopen(path, "r");
	char line[1024] = "";

	if (f == NULL)
		options_usage("secret file %s: %s", path, strerror(errno));
	if (fgets(line, sizeof(line), f) != NULL)
		line[strcspn(line, "\r\n")] = 0;
	fclose(f);
	return strdup(line);
}

/* Seconds: a number alone, or with ms, s, m or h. */
static double
options_duration(const char *name, const char *text)
{
	static const struct {
		const char *unit;
		double seconds;
	} units[] = {{"", 1}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
	char *end;
	double v = strtod(text, &end);

	for (unsigned i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (end != text && strcmp(end, units[i].unit) == 0 &&
			v * units[i].seconds >= 0.001 && v * units[i].seconds <= 1e9)
			return v * units[i].seconds;
	options_usage("--%s %s: a time like 30, 90s or 5m", name, text);
}

static void
parse_one(struct options *o, const struct row *r, const char *arg)
{
	void *at = (char *)o + r->at;

	switch (r->kind) {
	case FLAG:
		*(bool *)at = true;
		break;
	case TEXT:
		*(const char **)at = arg;
		break;
	case NUMBER:
		*(unsigned *)at = (unsigned)options_number(r->name, arg, r->min, r->max);
		break;
	case NUMBER_64:
		*(uint64_t *)at = (uint64_t)options_number(r->name, arg, r->min, r->max);
		break;
	case INDEX:
		*(int *)at = (int)options_number(r->name, arg, r->min, r->max);
		break;
	case REAL:
		*(double *)at = options_number(r->name, arg, r->min, r->max);
		break;
	case SECONDS:
		*(unsigned *)at = (unsigned)(1e3 * options_number(r->name, arg, r->min, r->max));
		break;
	case TIME:
		*(double *)at = options_duration(r->name, arg);
		break;
	case WORD:
		*(unsigned *)at = options_choice(r->name, arg, r->names);
		break;
	case SECRET:
		o->secret =
			strncmp(arg, "file:", 5) == 0 ? options_read_secret(arg + 5) : strdup(arg);
		break;
	case SECRET_FILE:
		o->secret = options_read_secret(arg);
		break;
	case FORMATS:
		parse_formats(o, arg);
		break;
	case HELP:
		options_print_help();
		exit(EXIT_GOOD);
	case VERSION:
		printf("pbox-perf %s\n", pbox_client_version());
		exit(EXIT_GOOD);
	}
}

/* What was given of those that the optimiser uses, and for the others defaults that show something. */
static void
complete_hyper(struct options *o)
{
	uint32_t uses = perf_uses(o->optimiser);
	struct pbox_hyper h;
	const char *wrong;

	pbox_hyper_defaults(&h, o->optimiser);
	if (!h.has_lr)
		h.lr = 1e-2;
	if ((uses & 1u << PBOX_HYPER_MOMENTUM) != 0)
		h.momentum = 0.9;
	for (unsigned id = 1; id < PBOX_HYPER_IDS; id++)
		if ((uses & 1u << id) != 0 && *pbox_hyper_at(&o->hyper, id) >= 0)
			*pbox_hyper_at(&h, id) = *pbox_hyper_at(&o->hyper, id);
	o->hyper = h;
	wrong = pbox_hyper_check(&h, o->optimiser);
	if (wrong != NULL)
		options_usage("--optimiser: %s", wrong);
}

/** One of them says how much data there is. */
static void
validate_data(struct options *o)
{
	unsigned size = wire_size(o->push_format);

	if ((o->elements != ELEMENTS_UNKNOWN) + (o->size > 0) + (o->model != NULL) > 1)
		options_usage("of --elements (-e), --size (-b) and --model (-m) one is wanted");
	if (o->size > 0 && fmod(o->size, size) != 0)
		options_usage(
			"--size %.15g: elements have %u bytes in %s, so a multiple of %u is wanted",
			o->size, size,
			pbox_format_name(pbox_format_is_block(o->push_format) ? PBOX_FMT_FP32
									      : o->push_format),
			size);
	if (o->size > 0)
		o->elements = (uint64_t)(o->size / size);
	else if (o->elements == ELEMENTS_UNKNOWN)
		o->elements = 1000000;
}

/** Each of those that were given is used. */
static void
validate_hyper(struct options *o)
{
	for (unsigned id = 1; id < PBOX_HYPER_IDS; id++) {
		char name[32];

		if (pbox_hyper_at(&o->hyper, id) == NULL || *pbox_hyper_at(&o->hyper, id) < 0 ||
			(perf_uses(o->optimiser) & 1u << id) != 0)
			continue;
		snprintf(name, sizeof(name), "%s", pbox_hyper_name(id));
		for (char *c = name; *c != 0; c++)
			if (*c == '_')
				*c = '-';
		if (o->optimiser == PBOX_OPT_NONE)
			options_usage(
				"--%s is an optimiser's: give --optimiser too, or leave it out",
				name);
		options_usage("--%s: optimiser %s does not have it", name,
			pbox_optimiser_name(o->optimiser));
	}
}

/** What goes with formats of blocks (R13.6). */
static void
validate_blocks(const struct options *o)
{
	const char *push = pbox_format_name(o->push_format);
	const char *pull = pbox_format_name(o->pull_format);

	if (!pbox_format_is_block(o->push_format) && !pbox_format_is_block(o->pull_format))
		return;
	if (o->push_format != o->pull_format)
		options_usage(
			"--format %s,%s: formats of blocks go both ways: give one", push, pull);
	if (o->optimiser != PBOX_OPT_NONE)
		options_usage(
			"--format %s with --optimiser %s: this tool checks such formats in sums alone: leave one of them out",
			push, pbox_optimiser_name(o->optimiser));
	if (o->slots != 0)
		options_usage(
			"--format %s with --slots: this tool checks such formats without slots alone: leave one of them out",
			push);
	if (!o->keep_copies)
		options_usage(
			"--format %s with --keep-copies off: results are decoded into the copies",
			push);
}

static void
validate(struct options *o)
{
	if (o->job == NULL)
		options_usage("--job is missing: the name of the job in the box's configuration");
	if (o->workers == 0)
		options_usage("--workers is missing: how many workers the job has in all");
	if (o->local > o->workers)
		options_usage("--local %u: the job has only %u workers", o->local, o->workers);
	if (o->worker < 0 && o->local > 1)
		o->worker = 0;
	if (o->worker >= 0 && o->worker + o->local > o->workers)
		options_usage("--worker %d --local %u: with %u workers the last number is %u",
			o->worker, o->local, o->workers, o->workers - 1);
	if (o->slots != 0 && o->slots < o->workers)
		options_usage(
			"--slots %u: %u workers have a slot each at least", o->slots, o->workers);
	validate_data(o);
	validate_blocks(o);
	validate_hyper(o);
	if (o->gso == 2) /* probe */
		o->gso = -1;
	if (o->op == 255)
		o->op = o->optimiser != 0 ? PBOX_OP_MEAN : PBOX_OP_SUM;
	complete_hyper(o);
}

void
options_parse(struct options *o, int argc, char **argv)
{
	struct option longs[N_ROWS + 1] = {{0}};
	char letters[2 * N_ROWS + 1] = "", *l = letters;
	unsigned n = 0;
	int c;

	*o = (struct options){
		.worker = -1,
		.local = 1,
		.elements = ELEMENTS_UNKNOWN,
		.rounds = 100,
		.warmup = 3,
		.interval = 1,
		.op = 255,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.timeout_ms = 30000,
		.gso = -1,
		.keep_copies = 1,
		.seed = 1,
	};
	for (unsigned id = 1; id < PBOX_HYPER_IDS; id++)
		if (pbox_hyper_at(&o->hyper, id) != NULL)
			*pbox_hyper_at(&o->hyper, id) = -1;
	for (unsigned i = 0; i < N_ROWS; i++) {
		if (is_heading(&rows[i]))
			continue;
		/* beyond all letters; two spellings are one for getopt, so that --opt is not ambiguous */
		longs[n++] = (struct option){rows[i].name, has_argument(&rows[i]), NULL,
			(int)(256 + (rows[i].text != NULL ? i : i - 1))};
		if (rows[i].letter != 0)
			l += sprintf(l, "%c%s", rows[i].letter, has_argument(&rows[i]) ? ":" : "");
	}
	while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		const struct row *r = rows + (c < 256 ? 0 : c - 256);

		while (c < 256 && r < rows + N_ROWS && r->letter != c)
			r++;
		if (r == rows + N_ROWS) { /* '?': getopt has said what */
			fprintf(stderr, "'pbox-perf --help' lists the options\n");
			exit(EXIT_USAGE);
		}
		parse_one(o, r, optarg);
	}
	if (optind + 1 != argc)
		options_usage(optind == argc ? "the address of the box is missing"
					     : "more than one address is given ('%s')",
			optind == argc ? "" : argv[optind + 1]);
	o->box = argv[optind];
	validate(o);
}
