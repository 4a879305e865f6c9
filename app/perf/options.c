/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <pbox_wire.h>

#include "perf.h"

static const char help[] =
	"pbox-perf: load and check a PBox parameter server from this host\n"
	"\n"
	"  pbox-perf BOX[:PORT] --job NAME --workers N [options]\n"
	"\n"
	"  -j, --job NAME         job (required)        -s, --secret TEXT|file:PATH\n"
	"      --secret-file F    its secret            -B, --bind ADDRESS  local address\n"
	"  -w, --workers N        workers of the job    -i, --worker I      number of this one\n"
	"  -l, --local K          run K workers here: I, I+1, ... (default 1)\n"
	"Data\n"
	"  -e, --elements N       one tensor of N elements (default 1M); k, M, G are 10^3, 6, 9\n"
	"  -b, --size BYTES       or: of so many bytes;  -m, --model FILE.csv: tensor,elements\n"
	"      --op OP            sum (default; mean with an optimiser), mean, sample_mean,\n"
	"                         weighted_mean\n"
	"  -O, --optimiser OPT    sgd, momentum, nesterov, adam, adamw: parameters on the box\n"
	"      --lr X --momentum X --dampening X --weight-decay X --beta1 X --beta2 X --eps X\n"
	"  -f, --format PUSH[,PULL]  fp32 (default), bf16, fp16\n"
	"      --per-tensor       one operation a tensor, last first, with priorities\n"
	"Run\n"
	"  -r, --rounds R         (default 100)         -t, --time S        or: so long (30, 90s, "
	"5m),\n"
	"                                                    also --duration\n"
	"      --warmup R         not counted (3)       -I, --interval S    between lines (1)\n"
	"  -c, --check WHICH      all (default), first, none; with first and none the data of\n"
	"                         the first round go again and again\n"
	"      --seed N           of the data (1)       -T, --timeout S     of a round (30)\n"
	"Network\n"
	"  -M, --mtu N            (the interface's)     -W, --window N      frames per endpoint\n"
	"      --gso on|off|probe                           --spin US       busy-poll\n"
	"      --keep-copies on|off                         goes on after a restart of the box "
	"(on)\n"
	"      --auth             refuse a box whose frames have no tags for this job\n"
	"      --run TEXT         of which run: another one ends that which the job has\n"
	"      --transport NAME   udp (default) or dpdk;    --transport-args TEXT for it, %i\n"
	"                         stands for the number of the local worker\n"
	"      --join-timeout S   (10)                      --lease S       (the box's)\n"
	"Output\n"
	"      --json             one object at the end -q, --quiet         no interval lines\n"
	"Exit code: 0 good, 1 wrong elements, 2 usage, 3 cannot join or declare, 4 a round "
	"failed.\n"
	"pbox-perf(1) has the details.\n";

enum {
	OPT_SECRET_FILE = 256,
	OPT_OP,
	OPT_LR,
	OPT_MOMENTUM,
	OPT_DAMPENING,
	OPT_WEIGHT_DECAY,
	OPT_BETA1,
	OPT_BETA2,
	OPT_EPS,
	OPT_PER_TENSOR,
	OPT_WARMUP,
	OPT_SEED,
	OPT_TRANSPORT,
	OPT_TRANSPORT_ARGS,
	OPT_GSO,
	OPT_AUTH,
	OPT_COPIES,
	OPT_SPIN,
	OPT_JOIN_TIMEOUT,
	OPT_LEASE,
	OPT_RUN,
	OPT_JSON,
};

static const struct option longs[] = {
	{"job", 1, NULL, 'j'},
	{"secret", 1, NULL, 's'},
	{"secret-file", 1, NULL, OPT_SECRET_FILE},
	{"bind", 1, NULL, 'B'},
	{"workers", 1, NULL, 'w'},
	{"worker", 1, NULL, 'i'},
	{"local", 1, NULL, 'l'},
	{"elements", 1, NULL, 'e'},
	{"size", 1, NULL, 'b'},
	{"model", 1, NULL, 'm'},
	{"op", 1, NULL, OPT_OP},
	{"optimiser", 1, NULL, 'O'},
	{"optimizer", 1, NULL, 'O'},
	{"lr", 1, NULL, OPT_LR},
	{"momentum", 1, NULL, OPT_MOMENTUM},
	{"dampening", 1, NULL, OPT_DAMPENING},
	{"weight-decay", 1, NULL, OPT_WEIGHT_DECAY},
	{"beta1", 1, NULL, OPT_BETA1},
	{"beta2", 1, NULL, OPT_BETA2},
	{"eps", 1, NULL, OPT_EPS},
	{"format", 1, NULL, 'f'},
	{"per-tensor", 0, NULL, OPT_PER_TENSOR},
	{"rounds", 1, NULL, 'r'},
	{"time", 1, NULL, 't'},
	{"duration", 1, NULL, 't'},
	{"warmup", 1, NULL, OPT_WARMUP},
	{"interval", 1, NULL, 'I'},
	{"check", 1, NULL, 'c'},
	{"seed", 1, NULL, OPT_SEED},
	{"timeout", 1, NULL, 'T'},
	{"mtu", 1, NULL, 'M'},
	{"window", 1, NULL, 'W'},
	{"gso", 1, NULL, OPT_GSO},
	{"keep-copies", 1, NULL, OPT_COPIES},
	{"auth", 0, NULL, OPT_AUTH},
	{"transport", 1, NULL, OPT_TRANSPORT},
	{"transport-args", 1, NULL, OPT_TRANSPORT_ARGS},
	{"spin", 1, NULL, OPT_SPIN},
	{"join-timeout", 1, NULL, OPT_JOIN_TIMEOUT},
	{"lease", 1, NULL, OPT_LEASE},
	{"run", 1, NULL, OPT_RUN},
	{"json", 0, NULL, OPT_JSON},
	{"quiet", 0, NULL, 'q'},
	{"help", 0, NULL, 'h'},
	{"version", 0, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

static void __attribute__((noreturn, format(printf, 1, 2))) usage(const char *fmt, ...)
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
number(const char *name, const char *text, double min, double max)
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
		usage("--%s %s: a number from %g to %g is wanted", name, text, min, max);
	return v;
}

static unsigned
choice(const char *name, const char *text, const char *const *names, unsigned n)
{
	char list[128] = "";

	for (unsigned i = 0; i < n; i++) {
		if (names[i] != NULL && strcasecmp(text, names[i]) == 0)
			return i;
		if (names[i] != NULL)
			snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
				list[0] != 0 ? ", " : "", names[i]);
	}
	usage("--%s %s: one of %s is wanted", name, text, list);
}

static unsigned
format_of(const char *text)
{
	static const char *const name[] = {NULL, "fp32", "bf16", "fp16"};

	return choice("format", text, name, 4);
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
	o->push_format = format_of(copy);
	o->pull_format = comma != NULL ? format_of(comma) : o->push_format;
}

static char *
read_secret(const char *path)
{
	FILE *f = fopen(path, "r");
	char line[1024] = "";

	if (f == NULL)
		usage("secret file %s: %s", path, strerror(errno));
	if (fgets(line, sizeof(line), f) != NULL)
		line[strcspn(line, "\r\n")] = 0;
	fclose(f);
	return strdup(line);
}

/** The options that take a plain number. */
/* Seconds: a number alone, or with ms, s, m or h. */
static double
duration(const char *name, const char *text)
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
	usage("--%s %s: a time like 30, 90s or 5m", name, text);
}

static bool
parse_number(struct options *o, int c, const char *name, const char *arg)
{
	switch (c) {
	case 'w':
		o->workers = (unsigned)number(name, arg, 1, PBOX_MAX_WORKERS);
		return true;
	case 'i':
		o->worker = (int)number(name, arg, 0, PBOX_MAX_WORKERS - 1);
		return true;
	case 'l':
		o->local = (unsigned)number(name, arg, 1, MAX_LOCAL);
		return true;
	case 'e':
		o->elements = (uint64_t)number(name, arg, 0, 1e12);
		return true;
	case 'r':
		o->rounds = (unsigned)number(name, arg, 1, 4e9);
		return true;
	case 't':
		o->seconds = duration(name, arg);
		return true;
	case OPT_WARMUP:
		o->warmup = (unsigned)number(name, arg, 0, 1e6);
		return true;
	case 'I':
		o->interval = number(name, arg, 0.05, 1e6);
		return true;
	case OPT_SEED:
		o->seed = (uint64_t)number(name, arg, 0, 9e15);
		return true;
	case 'T':
		o->timeout_ms = (unsigned)(1e3 * number(name, arg, 0.001, 4e6));
		return true;
	case 'M':
		o->mtu = (unsigned)number(name, arg, 602, 65535);
		return true;
	case 'W':
		o->window = (unsigned)number(name, arg, 1, 65535);
		return true;
	case OPT_SPIN:
		o->spin_us = (unsigned)number(name, arg, 0, 1e6);
		return true;
	case OPT_JOIN_TIMEOUT:
		o->join_timeout_ms = (unsigned)(1e3 * number(name, arg, 0.001, 4e6));
		return true;
	case OPT_LEASE:
		o->lease_ms = (unsigned)(1e3 * number(name, arg, 0.01, 4e6));
		return true;
	default:
		return false;
	}
}

static bool
parse_hyper(struct options *o, int c, const char *name, const char *arg)
{
	double *const at[] = {&o->lr, &o->momentum, &o->dampening, &o->weight_decay, &o->beta1,
		&o->beta2, &o->eps};

	if (c < OPT_LR || c > OPT_EPS)
		return false;
	*at[c - OPT_LR] = number(name, arg, 0, 1e6);
	return true;
}

static void
parse_one(struct options *o, int c, const char *name, const char *arg, double *size)
{
	static const char *const ops[] = {"sum", "mean", "sample_mean", "weighted_mean"};
	static const char *const opts[] = {"none", "sgd", "momentum", "nesterov", "adam", "adamw"};
	static const char *const checks[] = {"all", "first", "none"};
	static const char *const gso[] = {"off", "on", "probe"};

	if (parse_number(o, c, name, arg) || parse_hyper(o, c, name, arg))
		return;
	switch (c) {
	case 'j':
		o->job = arg;
		break;
	case 's':
		o->secret = strncmp(arg, "file:", 5) == 0 ? read_secret(arg + 5) : strdup(arg);
		break;
	case OPT_AUTH:
		o->auth = true;
		break;
	case OPT_SECRET_FILE:
		o->secret = read_secret(arg);
		break;
	case 'B':
		o->bind = arg;
		break;
	case 'b':
		*size = number(name, arg, 1, 1e13);
		break;
	case 'm':
		o->model = arg;
		break;
	case OPT_OP:
		o->op = choice(name, arg, ops, 4);
		break;
	case 'O':
		o->optimiser = choice(name, arg, opts, 6);
		break;
	case 'f':
		parse_formats(o, arg);
		break;
	case OPT_PER_TENSOR:
		o->per_tensor = true;
		break;
	case 'c':
		o->check = (enum check)choice(name, arg, checks, 3);
		break;
	case OPT_GSO:
		o->gso = choice(name, arg, gso, 3) == 2 ? -1 : (int)choice(name, arg, gso, 3);
		break;
	case OPT_COPIES:
		o->keep_copies = (int)choice(name, arg, gso, 2);
		break;
	case OPT_RUN:
		o->run = arg;
		break;
	case OPT_TRANSPORT:
		o->transport = arg;
		break;
	case OPT_TRANSPORT_ARGS:
		o->transport_args = arg;
		break;
	case OPT_JSON:
		o->json = true;
		break;
	case 'q':
		o->quiet = true;
		break;
	case 'h':
		fputs(help, stdout);
		exit(EXIT_GOOD);
	case 'V':
		printf("pbox-perf %s\n", pbox_client_version());
		exit(EXIT_GOOD);
	default:
		fprintf(stderr, "'pbox-perf --help' lists the options\n");
		exit(EXIT_USAGE);
	}
}

static void
validate(struct options *o, double size)
{
	if (o->job == NULL)
		usage("--job is missing: the name of the job in the box's configuration");
	if (o->workers == 0)
		usage("--workers is missing: how many workers the job has in all");
	if (o->local > o->workers)
		usage("--local %u: the job has only %u workers", o->local, o->workers);
	if (o->worker < 0 && o->local > 1)
		o->worker = 0;
	if (o->worker >= 0 && o->worker + o->local > o->workers)
		usage("--worker %d --local %u: with %u workers the last number is %u", o->worker,
			o->local, o->workers, o->workers - 1);
	if (size > 0)
		o->elements = (uint64_t)fmax(size / wire_size(o->push_format), 1);
	if (o->op == 255)
		o->op = o->optimiser != 0 ? PBOX_OP_MEAN : PBOX_OP_SUM;
	if (o->lr < 0)
		o->lr = o->optimiser >= PBOX_OPT_ADAM ? 1e-3 : 1e-2;
	if (o->momentum < 0)
		o->momentum = 0.9;
	if (o->weight_decay < 0)
		o->weight_decay = o->optimiser == PBOX_OPT_ADAMW ? 1e-2 : 0;
	if (o->optimiser == PBOX_OPT_NESTEROV && o->dampening != 0)
		usage("--dampening: nesterov has none");
}

void
options_parse(struct options *o, int argc, char **argv)
{
	double size = 0;
	int c, index = 0;

	*o = (struct options){
		.worker = -1,
		.local = 1,
		.elements = 1000000,
		.rounds = 100,
		.warmup = 3,
		.interval = 1,
		.op = 255,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.lr = -1,
		.momentum = -1,
		.weight_decay = -1,
		.beta1 = 0.9,
		.beta2 = 0.999,
		.eps = 1e-8,
		.timeout_ms = 30000,
		.gso = -1,
		.keep_copies = 1,
		.seed = 1,
	};
	while ((c = getopt_long(argc, argv, "j:s:B:w:i:l:e:b:m:O:f:r:t:I:c:T:M:W:qhV", longs,
			&index)) != -1) {
		const char *name = "?";

		for (const struct option *l = longs; l->name != NULL; l++)
			if (l->val == c) {
				name = l->name;
				break;
			}
		parse_one(o, c, name, optarg, &size);
	}
	if (optind + 1 != argc)
		usage(optind == argc ? "the address of the box is missing"
				     : "more than one address is given ('%s')",
			optind == argc ? "" : argv[optind + 1]);
	o->box = argv[optind];
	validate(o, size);
}
