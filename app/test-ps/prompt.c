/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * testpmd's prompt, on librte_cmdline: its parser and completion, and its line editor. The loop is our
 * own: it looks at the run between two keys, and an unknown command says which there are.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmdline.h>
#include <cmdline_parse.h>
#include <cmdline_parse_num.h>
#include <cmdline_parse_string.h>
#include <cmdline_rdline.h>
#include <cmdline_socket.h>
#include <rte_ethdev.h>

#include "json.h"
#include "run.h"
#include "show.h"
#include "testps.h"
#include "value.h"

#define PROMPT   "testps> "
#define LOOK_MS  50
#define LINE     1024  /* longer than the editor takes */
#define WAIT_MAX 86400 /* s */
#define CTRL_U   0x15

static struct {
	struct testps *t;
	struct cmdline *cl;
	struct rdline *line;
	struct figures begin;
	struct stats_lines lines;
	uint64_t end_us; /* of the run, by --duration */
	bool running, quit, failed;
	bool ends; /* the run has an end of its own */
} self;

/* What the tokens of all commands are read into. */
struct words {
	cmdline_fixed_string_t first, second, third, value;
	uint16_t number; /* where value is empty */
};

static void
complain(const struct pbox_error *err)
{
	printf("error: %s\n", err->text);
	self.failed = true;
}

/* ---- the run ------------------------------------------------------------------------------------- */

static void
prompt_finish(void)
{
	struct testps *t = self.t;
	struct pbox_error err = {0};
	struct figures f;
	int ret = run_stop(t, &err);

	self.running = false;
	figures_take(t, &f);
	f.at_us = t->ended_us;
	self.begin.at_us = t->begun_us;
	figures_latency(t, &f);
	figures_since(&f, &self.begin, t->workers);
	run_summary(&f, stdout);
	if (ret != 0)
		complain(&err);
	if (t->opt.json[0] != '\0' && json_write(t, &f, &err) != 0)
		complain(&err);
}

/* Between two keys: is a line of figures due, has the run come to its end by itself? What is being typed
 * stays below. */
static void
prompt_look(void)
{
	struct testps *t = self.t;
	struct pbox_error err = {0};
	uint64_t now = testps_now(t);
	bool ends;

	if (self.running && session_lost(t))
		session_rejoin(t, &err); /* what fails ends the run */
	ends = !session_running(t) || session_failed(t, NULL) || now >= self.end_us;
	if (!self.running || (!ends && now < self.lines.next_us))
		return;
	fputs(self.line != NULL ? "\r\033[K" : "", stdout);
	if (ends)
		prompt_finish();
	else
		stats_lines_next(t, &self.lines, stdout);
	if (self.line != NULL)
		rdline_redisplay(self.line);
	fflush(stdout);
}

static void
do_start(struct testps *t, const struct words *w)
{
	uint32_t rounds = t->opt.rounds;
	struct pbox_error err = {0};

	if (self.running) {
		puts("error: it runs already: stop first, or wait until it ends");
		self.failed = true;
		return;
	}
	if (w->second[0] != '\0') {
		char *end;
		unsigned long v = strtoul(w->second, &end, 10);

		if (*end != '\0' || v < 1 || v >= NO_LIMIT) {
			printf("error: start %s: a number of rounds, 1 or more\n", w->second);
			self.failed = true;
			return;
		}
		rounds = (uint32_t)v;
	}
	if (run_start(t, &err) != 0) {
		complain(&err);
		return;
	}
	stats_clear(t);
	figures_take(t, &self.begin);
	show_port_begin(t);
	if (session_run(t, rounds, &err) != 0) {
		complain(&err);
		return;
	}
	self.end_us = t->opt.duration_ns > 0 ? t->begun_us + t->opt.duration_ns / 1000 : UINT64_MAX;
	self.running = true;
	self.ends = rounds > 0 || t->opt.duration_ns > 0;
	puts("started");
	stats_lines_begin(t, &self.lines, stdout);
}

static void
do_stop(struct testps *t __rte_unused, const struct words *w __rte_unused)
{
	if (self.running)
		prompt_finish();
	else
		puts("it does not run: start first");
}

/* Until then, or until there is no run. */
static void
prompt_wait(struct testps *t, uint64_t until, bool for_the_end)
{
	while (testps_now(t) < until && (self.running || !for_the_end) && !run_stop_wanted()) {
		fflush(stdout);
		poll(NULL, 0, LOOK_MS);
		prompt_look();
	}
}

/* -1: no time. */
static int64_t
seconds(const struct words *w)
{
	char *end;
	double v = strtod(w->second, &end);

	if (end == w->second || *end != '\0' || !(v >= 0 && v <= WAIT_MAX)) {
		printf("error: %s %s: seconds, from 0 to %d\n", w->first, w->second, WAIT_MAX);
		self.failed = true;
		return -1;
	}
	return (int64_t)(v * US_SECOND);
}

static void
do_sleep(struct testps *t, const struct words *w)
{
	int64_t us = seconds(w);

	if (us >= 0)
		prompt_wait(t, testps_now(t) + (uint64_t)us, false);
}

static void
do_wait(struct testps *t, const struct words *w)
{
	int64_t us = w->second[0] != '\0' ? seconds(w) : 0;

	if (us < 0 || !self.running)
		return;
	if (w->second[0] == '\0' && !self.ends) {
		puts("error: nothing ends this run: start ROUNDS, or --duration; or wait SECONDS");
		self.failed = true;
		return;
	}
	prompt_wait(t, w->second[0] != '\0' ? testps_now(t) + (uint64_t)us : UINT64_MAX, true);
	if (self.running && !run_stop_wanted()) {
		printf("error: it still runs after %s s\n", w->second);
		self.failed = true;
	}
}

static void
do_quit(struct testps *t __rte_unused, const struct words *w __rte_unused)
{
	if (self.running)
		prompt_finish();
	self.quit = true;
	if (self.line != NULL)
		rdline_quit(self.line);
}

static void
no_port(const struct testps *t, unsigned id)
{
	printf("error: port %u: 'all', or one of", id);
	for (unsigned p = 0; p < t->n_ports; p++)
		printf(" %u", t->port[p].conf.id);
	putchar('\n');
	self.failed = true;
}

/* @p id -1: of all; false: there is none. */
static bool
clear_ports(struct testps *t, int id)
{
	bool any = false;

	for (unsigned p = 0; p < t->n_ports; p++) {
		if (id >= 0 && t->port[p].conf.id != id)
			continue;
		any = true;
		rte_eth_stats_reset(t->port[p].conf.id);
		rte_eth_xstats_reset(t->port[p].conf.id);
	}
	show_port_begin(t);
	return any;
}

static void
do_clear(struct testps *t, const struct words *w __rte_unused)
{
	stats_clear(t);
	clear_ports(t, -1);
	figures_take(t, &self.begin);
	figures_take(t, &self.lines.last);
	t->begun_us = testps_now(t);
	puts("counters are 0");
}

/* Counters of lcores and latencies stay. */
static void
do_clear_port(struct testps *t, const struct words *w)
{
	int id = w->value[0] != '\0' ? -1 : w->number;

	if (clear_ports(t, id))
		puts("counters of the port are 0");
	else
		no_port(t, w->number);
}

/* ---- show ---------------------------------------------------------------------------------------- */

static void
do_show_port(struct testps *t, const struct words *w)
{
	if (!show_port(t, w->third, w->value[0] != '\0' ? -1 : w->number))
		no_port(t, w->number);
}

static void
do_show(struct testps *t, const struct words *w)
{
	if (strcmp(w->second, "workers") == 0)
		show_workers(t);
	else if (strcmp(w->second, "jobs") == 0)
		show_jobs(t);
	else if (strcmp(w->second, "flights") == 0)
		show_flights(t);
	else
		show_settings(t);
}

/* ---- set ----------------------------------------------------------------------------------------- */

static void
do_set(struct testps *t, const struct words *w)
{
	struct testps_load l = t->load;
	struct pbox_error err = {0};
	int ret = run_set(t, &l, w->second, w->value, &err);

	if (ret == 0 && self.running)
		ret = pbox_fail(
			&err, EBUSY, "%s cannot change while rounds run: stop first", w->second);
	if (ret < 0) {
		complain(&err);
		return;
	}
	t->load = l;
	run_settings(t);
	if (ret == 0 && t->open)
		session_leave(t); /* the next start joins with it */
	printf("%s is %s%s\n", w->second, w->value, ret == 0 ? ", from the next start on" : "");
}

/* ---- the commands ---------------------------------------------------------------------------------- */

static void do_help(struct testps *t, const struct words *w);

#define TOKEN(name_, field_, text_)                         \
	static cmdline_parse_token_string_t token_##name_ = \
		TOKEN_STRING_INITIALIZER(struct words, field_, text_)

TOKEN(start, first, "start");
TOKEN(stop, first, "stop");
TOKEN(sleep, first, "sleep");
TOKEN(wait, first, "wait");
TOKEN(quit, first, "quit#exit");
TOKEN(help, first, "help");
TOKEN(clear, first, "clear");
TOKEN(show, first, "show");
TOKEN(set, first, "set");
TOKEN(rounds, second, NULL);
TOKEN(port, second, "port");
TOKEN(port_what, third, "stats#xstats#info");
static cmdline_parse_token_num_t token_port_number =
	TOKEN_NUM_INITIALIZER(struct words, number, RTE_UINT16);
TOKEN(port_all, value, "all");
TOKEN(port_counters, third, "stats#xstats");
TOKEN(help_word, second, NULL);
TOKEN(show_what, second, "workers#jobs#flights#settings");

static void
call(void *parsed, struct cmdline *cl __rte_unused, void *data)
{
	void (*f)(struct testps * t, const struct words *w);

	memcpy(&f, data, sizeof(f));
	f(self.t, parsed);
}

typedef void (*command)(struct testps *t, const struct words *w);
static command start_f = do_start, sleep_f = do_sleep, wait_f = do_wait, stop_f = do_stop,
	       quit_f = do_quit, help_f = do_help, clear_f = do_clear, clear_port_f = do_clear_port,
	       show_port_f = do_show_port, show_f = do_show, set_f = do_set;

#define HDR(token) (void *)&token_##token
#define COMMAND(name_, function_, help_, ...)        \
	static cmdline_parse_inst_t inst_##name_ = { \
		.f = call,                           \
		.data = &function_,                  \
		.help_str = help_,                   \
		.tokens = {__VA_ARGS__, NULL},       \
	}

COMMAND(start, start_f, "start: join the box if need be, and begin rounds", HDR(start));
COMMAND(start_rounds, start_f, "start ROUNDS: so many, then stop", HDR(start), HDR(rounds));
COMMAND(stop, stop_f, "stop: finish the round in progress, and say what was reached", HDR(stop));
COMMAND(wait, wait_f, "wait: until the run has come to its end", HDR(wait));
COMMAND(wait_seconds, wait_f, "wait SECONDS: not longer than that; it is an error if it runs then",
	HDR(wait), HDR(rounds));
COMMAND(sleep, sleep_f, "sleep SECONDS: let rounds run so long", HDR(sleep), HDR(rounds));
COMMAND(show_port, show_port_f,
	"show port stats|xstats|info all: what the ports have counted, rates, and what they are",
	HDR(show), HDR(port), HDR(port_what), HDR(port_all));
COMMAND(show_port_number, show_port_f, "show port stats|xstats|info NUMBER: of one port", HDR(show),
	HDR(port), HDR(port_what), HDR(port_number));
COMMAND(show, show_f,
	"show workers|jobs|flights|settings: rounds of each worker, the job, fragments under way, what is set",
	HDR(show), HDR(show_what));
/* set NAME VALUE */
#define SET(name_, names_, help_, what_, choices_)                                \
	TOKEN(set_##name_, second, names_);                                       \
	static struct value_token token_value_##name_ = {                         \
		.string = {.hdr = {&value_ops, offsetof(struct words, value)}},   \
		.what = what_,                                                    \
		.choices = choices_,                                              \
	};                                                                        \
	COMMAND(set_##name_, set_f, "set " #name_ " " what_ ": " help_, HDR(set), \
		HDR(set_##name_), HDR(value_##name_))

#define LATER ", from the next start on"
SET(workers, "workers", "how many play" LATER, "1..1024", NULL);
SET(model, "model", "a list of tensor,elements, or a size in fp32" LATER, "FILE|64K|4M|1G", NULL);
SET(fragment, "fragment", "payload of a frame" LATER, "BYTES|auto", NULL);
SET(window, "window", "frames in flight, of a worker at an endpoint" LATER, "FRAMES|auto", NULL);
#define OR(symbol, number, name, ...)   "|" #name
#define NEXT(symbol, number, name, ...) "#" #name
SET(dtype, "dtype", "of what is pushed, and of what comes back" LATER,
	"fp32" PBOX_FORMATS_16(OR) "[,fp32" PBOX_FORMATS_16(OR) "]" PBOX_FORMATS_BLOCK(OR),
	"fp32" PBOX_FORMATS_16(NEXT) PBOX_FORMATS_BLOCK(NEXT));
SET(optimiser, "optimiser#optimizer", "on the box; none: all-reduce" LATER,
	"none" PBOX_OPTIMISERS(OR), "none" PBOX_OPTIMISERS(NEXT));
SET(loss, "loss", "frames thrown away, each way, at once", "PERCENT", NULL);
SET(straggler, "straggler", "late in every round, at once", "WORKER:TIME|none", NULL);
SET(rate, "rate", "contributions a second, of all workers, at once", "N|none", NULL);
COMMAND(clear, clear_f, "clear: counters and latencies begin at 0", HDR(clear));
COMMAND(clear_port, clear_port_f, "clear port stats|xstats all: those of the ports alone",
	HDR(clear), HDR(port), HDR(port_counters), HDR(port_all));
COMMAND(clear_port_number, clear_port_f, "clear port stats|xstats NUMBER: of one port", HDR(clear),
	HDR(port), HDR(port_counters), HDR(port_number));
COMMAND(help, help_f, "help: this list; Tab and ? complete, the arrows bring back earlier lines",
	HDR(help));
COMMAND(help_of, help_f, "help WORD: of the commands that begin with it", HDR(help),
	HDR(help_word));
COMMAND(quit, quit_f, "quit: stop, leave the box and end", HDR(quit));

static cmdline_parse_ctx_t commands[] = {&inst_start, &inst_start_rounds, &inst_stop, &inst_wait,
	&inst_wait_seconds, &inst_sleep, &inst_show_port, &inst_show_port_number, &inst_show,
	&inst_set_workers, &inst_set_model, &inst_set_fragment, &inst_set_window, &inst_set_dtype,
	&inst_set_optimiser, &inst_set_loss, &inst_set_straggler, &inst_set_rate, &inst_clear,
	&inst_clear_port, &inst_clear_port_number, &inst_help, &inst_help_of, &inst_quit, NULL};

/* Help of the commands that begin with the first @p n bytes of @p word; how many. */
static unsigned
prompt_print_help(const char *word, size_t n)
{
	unsigned found = 0;

	for (unsigned i = 0; commands[i] != NULL; i++) {
		const char *help = commands[i]->help_str;

		if (strncmp(help, word, n) != 0 || (n > 0 && strchr(" :", help[n]) == NULL))
			continue;
		printf("  %s\n", help);
		found++;
	}
	return found;
}

static void
do_help(struct testps *t __rte_unused, const struct words *w)
{
	/* testpmd's has sections, and "all" of them; a word without help of its own gets all too */
	if (w->second[0] == '\0' || prompt_print_help(w->second, strlen(w->second)) == 0)
		prompt_print_help("", 0);
}

static void
obey(const char *text)
{
	size_t blank = strspn(text, " \t\r\n"), word, two;
	int ret;

	text += blank;
	if (*text == '\0' || *text == '#')
		return;
	ret = cmdline_parse(self.cl, text);
	if (ret >= 0)
		return;
	self.failed = true;
	word = strcspn(text, " \t\r\n");
	printf("%.*s: %s\n", (int)strcspn(text, "\r\n"), text,
		ret == CMDLINE_PARSE_BAD_ARGS    ? "something is missing, or wrong, after that"
		: ret == CMDLINE_PARSE_AMBIGUOUS ? "that may be several commands"
						 : "there is no such command");
	/* of "set loss" alone, if there is that; else of all that begin with "set" */
	two = word + strspn(text + word, " \t");
	two += strcspn(text + two, " \t\r\n");
	if ((two == word || prompt_print_help(text, two) == 0) &&
		prompt_print_help(text, word) == 0) {
		puts("there are:");
		prompt_print_help("", 0);
	}
}

/* ---- the loop ---------------------------------------------------------------------------------------- */

static int
on_char(struct rdline *rdl __rte_unused, char c)
{
	return putchar(c) == EOF ? -1 : 0;
}

static void
on_line(struct rdline *rdl __rte_unused, const char *buf, unsigned size __rte_unused)
{
	fflush(stdout);
	obey(buf);
}

static int
on_tab(struct rdline *rdl __rte_unused, const char *buf, char *dst, unsigned size, int *state)
{
	static char last[LINE];
	char *text;
	int ret;

	if (*state <= 0)
		last[0] = '\0';
	do {
		ret = cmdline_complete(self.cl, buf, state, dst, size);
		/* the parser's name of a token says nothing, and the help of several words is the same */
		text = ret == 1 ? strchr(dst, '[') : NULL;
		if (text != NULL &&
			(strncmp(text, "[Mul-choice", 11) == 0 ||
				strncmp(text, "[Fixed", 6) == 0) &&
			strchr(text, ']') != NULL)
			memmove(text, strchr(text, ']') + 1, strlen(strchr(text, ']') + 1) + 1);
	} while (ret == 1 && strncmp(dst, last, LINE - 1) == 0);
	if (ret == 1)
		snprintf(last, sizeof(last), "%s", dst);
	return ret;
}

/* A line was entered: remember it, and show the prompt again. */
static void
next_line(void)
{
	char text[LINE];

	snprintf(text, sizeof(text), "%s", rdline_get_buffer(self.line));
	text[strcspn(text, "\n")] = '\0';
	if (text[0] != '\0')
		rdline_add_history(self.line, text);
	if (!self.quit)
		rdline_newline(self.line, PROMPT);
}

static void
keys(int fd)
{
	while (!self.quit && !run_stop_wanted()) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int ready;
		char c;

		fflush(stdout);
		ready = poll(&p, 1, LOOK_MS);
		prompt_look();
		if (ready <= 0)
			continue;
		if (read(fd, &c, 1) != 1) {
			do_quit(self.t, NULL);
			return;
		}
		if (c == CTRL_U) { /* the editor does not know it: a new line in this one's place */
			fputs("\r\033[K", stdout);
			rdline_newline(self.line, PROMPT);
			continue;
		}
		switch (rdline_char_in(self.line, c)) {
		case RDLINE_RES_VALIDATED:
			next_line();
			break;
		case RDLINE_RES_EOF:
		case RDLINE_RES_EXITED:
			putchar('\n');
			do_quit(self.t, NULL);
			break;
		default:
			break;
		}
	}
	if (run_stop_wanted() && !self.quit) {
		putchar('\n');
		do_quit(self.t, NULL);
	}
}

/* Lines of a file, or of a pipe: each is shown as if it had been typed. */
static void
lines(int fd)
{
	char text[LINE];
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	FILE *f = copy >= 0 ? fdopen(copy, "r") : NULL;

	while (f != NULL && !self.quit && !run_stop_wanted() &&
		fgets(text, sizeof(text), f) != NULL) {
		printf(PROMPT "%s%s", text, strchr(text, '\n') != NULL ? "" : "\n");
		obey(text);
		fflush(stdout);
	}
	if (f != NULL)
		fclose(f);
	else if (copy >= 0)
		close(copy);
}

int
prompt(struct testps *t, int fd, bool script)
{
	bool terminal = !script && isatty(fd);

	self.t = t;
	self.quit = false;
	/* the terminal's mode is its work, and its context the parser's */
	self.cl = terminal ? cmdline_stdin_new(commands, "") : cmdline_new(commands, "", -1, -1);
	if (self.cl == NULL) {
		fprintf(stderr, "pbox-testps: no memory for the prompt\n");
		return 1;
	}
	if (t->opt.auto_start && !self.running) {
		const struct words none = {0};

		do_start(t, &none);
	}
	if (terminal)
		self.line = rdline_new(on_char, on_line, on_tab, NULL);
	if (terminal && self.line != NULL) {
		rdline_newline(self.line, PROMPT);
		keys(fd);
		rdline_free(self.line);
		self.line = NULL;
		self.failed = false; /* somebody has seen it */
	} else {
		lines(fd);
	}
	if (terminal)
		cmdline_stdin_exit(self.cl); /* and frees it */
	else
		cmdline_free(self.cl);
	if (self.running && (!t->opt.interactive || !script))
		do_quit(t, NULL);
	return self.failed ? 1 : self.quit ? -1 : 0;
}
