/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <string.h>

#include "conf_priv.h"

#define ARG_MAX_BYTES 4096 /* of one --section argument */
#define KEY_MAX       64

struct args {
	struct pbox_conf *conf;
	int argc, next;
	char *const *argv;
};

/* Length of the option name at s; only if = follows it. */
static size_t
key_length(const char *s)
{
	size_t n = 0;

	while ((s[n] >= 'a' && s[n] <= 'z') || (n > 0 && s[n] >= '0' && s[n] <= '9') ||
		(n > 0 && s[n] == '-'))
		n++;
	return s[n] == '=' ? n : 0;
}

/* The value at s ends at a comma with `key=` after it, so that values may hold commas. */
static char *
value_end(char *s)
{
	for (; *s != '\0'; s++)
		if (*s == ',' && key_length(s + 1) > 0)
			break;
	return s;
}

/* NAME:key=value,key=value; the name ends at the last colon before the first =, because device
 * names (0000:03:00.0) have colons themselves. */
static int
parse_section(struct args *a, struct conf_place at, unsigned section, const char *value,
	struct pbox_error *err)
{
	const char *name = a->conf->table->sections[section].name;
	char text[ARG_MAX_BYTES], *s, *colon;
	struct conf_item it;
	int ret, option;

	if (strlen(value) >= sizeof(text))
		return pbox_fail(err, EINVAL, "command line: --%s is longer than %d bytes", name,
			ARG_MAX_BYTES - 1);
	memcpy(text, value, strlen(value) + 1);
	s = strchr(text, '=');
	colon = s != NULL ? memrchr(text, ':', (size_t)(s - text)) : NULL;
	if (colon == NULL) {
		ret = pbox_fail(err, EINVAL,
			"command line: write --%s NAME:key=value,key=value (argument %u)", name,
			at.arg);
		goto out;
	}
	*colon = '\0';
	ret = conf_open_item(a->conf, at, section, text, &it, err);
	for (s = colon + 1; ret == 0 && s != NULL;) {
		char *eq = strchr(s, '='), *end;

		PBOX_ASSERT(eq != NULL); /* value_end() and the search for the colon see to it */
		*eq = '\0';
		end = value_end(eq + 1);
		ret = option = conf_find_option(a->conf, at, section, s, err);
		if (ret < 0)
			break;
		s = *end == ',' ? end + 1 : NULL;
		*end = '\0';
		ret = conf_set(a->conf, at, it, (unsigned)option, eq + 1, err);
	}
out:
	explicit_bzero(text, sizeof(text));
	return ret;
}

static bool
is_name_of(const struct pbox_conf_option *o, const char *word)
{
	for (unsigned i = 0; word != NULL && o->names[i] != NULL; i++)
		if (strcmp(o->names[i], word) == 0)
			return true;
	return false;
}

/* value: the text after the =, or NULL */
static int
parse_global(struct args *a, struct conf_place at, unsigned option, const char *value,
	struct pbox_error *err)
{
	const struct pbox_conf_option *o = &a->conf->table->sections[0].options[option];
	const char *next = a->next < a->argc ? a->argv[a->next] : NULL;
	struct conf_item global = {0, 0};

	if (value != NULL)
		return conf_set(a->conf, at, global, option, value, err);
	if (o->type == PBOX_CONF_BOOL)
		return conf_set(a->conf, at, global, option, "yes", err);
	if (o->flags & PBOX_CONF_OPTIONAL_ARG) {
		if (is_name_of(o, next))
			a->next++;
		else
			next = o->names[1];
		return conf_set(a->conf, at, global, option, next, err);
	}
	if (next == NULL)
		return pbox_fail(err, EINVAL, "command line: --%s needs a value after it", o->name);
	a->next++;
	return conf_set(a->conf, at, global, option, next, err);
}

static int
parse_long(struct args *a, struct conf_place at, const char *arg, struct pbox_error *err)
{
	const struct pbox_conf_table *t = a->conf->table;
	const char *eq = strchr(arg, '=');
	size_t n = eq != NULL ? (size_t)(eq - arg) : strlen(arg);
	char key[KEY_MAX];
	int option;

	if (n >= sizeof(key))
		return pbox_fail(err, EINVAL, "command line: unknown option --%.32s...", arg);
	memcpy(key, arg, n);
	key[n] = '\0';
	for (unsigned s = 1; s < t->n_sections; s++) {
		if (strcmp(t->sections[s].name, key) != 0)
			continue;
		if (eq == NULL && a->next == a->argc)
			return pbox_fail(err, EINVAL,
				"command line: --%s needs NAME:key=value,... after it", key);
		return parse_section(a, at, s, eq != NULL ? eq + 1 : a->argv[a->next++], err);
	}
	option = conf_find_option(a->conf, at, 0, key, err);
	if (option < 0)
		return option;
	return parse_global(a, at, (unsigned)option, eq != NULL ? eq + 1 : NULL, err);
}

/* -x, -x VALUE or -xVALUE; no bundles */
static int
parse_short(struct args *a, struct conf_place at, const char *arg, struct pbox_error *err)
{
	const struct pbox_conf_section *global = &a->conf->table->sections[0];

	for (unsigned i = 0; i < global->n_options; i++)
		if (global->options[i].letter == arg[0])
			return parse_global(a, at, i, arg[1] != '\0' ? arg + 1 : NULL, err);
	return pbox_fail(
		err, EINVAL, "command line: unknown option -%c: '--help' lists them", arg[0]);
}

int
pbox_conf_args(struct pbox_conf *conf, int argc, char *const argv[], struct pbox_error *err)
{
	struct args a = {.conf = conf, .argc = argc, .next = 1, .argv = argv};
	int ret = 0;

	while (ret == 0 && a.next < argc) {
		struct conf_place at = {0, (unsigned)a.next};
		const char *arg = argv[a.next++];

		if (strncmp(arg, "--", 2) == 0 && arg[2] != '\0')
			ret = parse_long(&a, at, arg + 2, err);
		else if (arg[0] == '-' && arg[1] != '\0' && arg[1] != '-')
			ret = parse_short(&a, at, arg + 1, err);
		else
			ret = pbox_fail(err, EINVAL,
				"command line: '%.64s' is not an option: options begin with --",
				arg);
	}
	return ret;
}
