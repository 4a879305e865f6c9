/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Configuration files: lines, sections, quotes and comments. */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf_priv.h"

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static char *
skip_blanks(char *s)
{
	while (is_blank(*s))
		s++;
	return s;
}

static void
cut_blanks(char *s)
{
	size_t n = strlen(s);

	while (n > 0 && is_blank(s[n - 1]))
		s[--n] = '\0';
}

/* Cut a comment off: from # or ; at the beginning or after a blank. */
static void
cut_comment(char *s)
{
	for (size_t i = 0; s[i] != '\0'; i++)
		if ((s[i] == '#' || s[i] == ';') && (i == 0 || is_blank(s[i - 1]))) {
			s[i] = '\0';
			break;
		}
	cut_blanks(s);
}

/* Take a value out of its quotes, in place; NULL: they do not close, or more comes after them. */
static char *
unquote(char *s)
{
	char *to = s, *from = s + 1;

	for (; *from != '"'; from++) {
		if (*from == '\\' && (from[1] == '"' || from[1] == '\\'))
			from++;
		if (*from == '\0')
			return NULL;
		*to++ = *from;
	}
	from++;
	if (*from != '\0' && !is_blank(*from))
		return NULL;
	cut_comment(from);
	if (*skip_blanks(from) != '\0')
		return NULL;
	*to = '\0';
	return s;
}

/* [name rest] -> the section's number and its item */
static int
parse_header(struct pbox_conf *conf, struct conf_place at, char *s, struct conf_item *it,
	struct pbox_error *err)
{
	const struct pbox_conf_table *t = conf->table;
	struct conf_nearest near;
	char place[CONF_PLACE_MAX], *end, *name;

	conf_place(conf, at, place);
	end = strchr(s, ']');
	if (end == NULL)
		return pbox_fail(err, EINVAL, "%s: the section's name is not closed by ]", place);
	*end = '\0';
	end++;
	if (*end != '\0' && !is_blank(*end))
		return pbox_fail(err, EINVAL, "%s: there is something after the ]", place);
	cut_comment(end);
	if (*skip_blanks(end) != '\0')
		return pbox_fail(err, EINVAL, "%s: there is something after the ]", place);
	s = skip_blanks(s + 1);
	cut_blanks(s);
	name = s + strcspn(s, " \t");
	if (*name != '\0')
		*name++ = '\0';
	name = skip_blanks(name);
	near = (struct conf_nearest){.word = s};
	for (unsigned i = 1; i < t->n_sections; i++) {
		if (strcmp(t->sections[i].name, s) == 0)
			return conf_open_item(conf, at, i, name, it, err);
		conf_nearer(&near, t->sections[i].name);
	}
	if (near.best != NULL)
		return pbox_fail(err, EINVAL, "%s: unknown section [%.64s]: did you mean [%s %s]?",
			place, s, near.best, *name != '\0' ? name : "NAME");
	return pbox_fail(
		err, EINVAL, "%s: unknown section [%.64s]: '--help all' lists them", place, s);
}

/* key = value. What has no = is not shown whole: it may be a secret. */
static int
parse_pair(struct pbox_conf *conf, struct conf_place at, char *s, struct conf_item it,
	struct pbox_error *err)
{
	char place[CONF_PLACE_MAX], *value = strchr(s, '=');
	int option;

	conf_place(conf, at, place);
	if (value == NULL) {
		s[strcspn(s, " \t")] = '\0';
		return pbox_fail(
			err, EINVAL, "%s: no = after '%.32s': write key = value", place, s);
	}
	*value++ = '\0';
	cut_blanks(s);
	value = skip_blanks(value);
	option = conf_find_option(conf, at, it.section, s, err);
	if (option < 0)
		return option;
	if (*value == '"') {
		value = unquote(value);
		if (value == NULL)
			return pbox_fail(
				err, EINVAL, "%s: %s: the value's quotes do not close", place, s);
	} else {
		/* a comment may follow at once: `key = # none` has no value */
		cut_comment(value);
	}
	return conf_set(conf, at, it, (unsigned)option, value, err);
}

static int
parse_line(struct pbox_conf *conf, struct conf_place at, const char *text, size_t len,
	struct conf_item *it, struct pbox_error *err)
{
	char line[PBOX_CONF_LINE_MAX + 1], place[CONF_PLACE_MAX], *s;
	int ret;

	if (len > 0 && text[len - 1] == '\r')
		len--;
	if (len > PBOX_CONF_LINE_MAX)
		return pbox_fail(err, EINVAL, "%s is longer than %d bytes",
			conf_place(conf, at, place), PBOX_CONF_LINE_MAX);
	for (size_t i = 0; i < len; i++)
		if (((unsigned char)text[i] < 0x20 && text[i] != '\t') || text[i] == 0x7f)
			return pbox_fail(err, EINVAL,
				"%s holds a control character (0x%02x): is this a text file?",
				conf_place(conf, at, place), (unsigned char)text[i]);
	memcpy(line, text, len);
	line[len] = '\0';
	s = skip_blanks(line);
	if (*s == '\0' || *s == '#' || *s == ';')
		ret = 0;
	else if (*s == '[')
		ret = parse_header(conf, at, s, it, err);
	else
		ret = parse_pair(conf, at, s, *it, err);
	explicit_bzero(line, sizeof(line));
	return ret;
}

int
pbox_conf_text(struct pbox_conf *conf, const char *name, const char *text, size_t len,
	struct pbox_error *err)
{
	struct conf_place at = {0, 0};
	struct conf_item it = {0, 0};
	size_t from = 0;
	int ret;

	if (conf->file[0] != '\0')
		return pbox_fail(err, EINVAL, "%s was read already", conf->file);
	snprintf(conf->file, sizeof(conf->file), "%s", name);
	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		from = 3; /* the mark that some editors put in front of UTF-8 */
	while (from < len) {
		const char *end = memchr(text + from, '\n', len - from);
		size_t n = end != NULL ? (size_t)(end - text) - from : len - from;

		at.line++;
		ret = parse_line(conf, at, text + from, n, &it, err);
		if (ret != 0)
			return ret;
		from += n + 1;
	}
	return 0;
}

int
pbox_conf_file(struct pbox_conf *conf, const char *path, struct pbox_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), ret;
	struct stat st;
	char *text = NULL, user[48];
	size_t n = 0;

	if (fd < 0) {
		int error = errno;

		return pbox_fail(err, error, "cannot read %s%s: %s", path,
			conf_as_user(error, user, sizeof(user)), strerror(error));
	}
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		ret = pbox_fail(err, EINVAL, "%s is not a regular file", path);
		goto out;
	}
	text = malloc(PBOX_CONF_FILE_MAX + 1);
	if (text == NULL) {
		ret = pbox_fail(err, ENOMEM, "no memory to read %s", path);
		goto out;
	}
	for (;;) {
		ssize_t got = read(fd, text + n, PBOX_CONF_FILE_MAX + 1 - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			ret = pbox_fail(err, errno, "cannot read %s: %s", path, strerror(errno));
			goto out;
		}
		n += (size_t)got;
		if (n > PBOX_CONF_FILE_MAX) {
			ret = pbox_fail(err, EINVAL, "%s is larger than %d bytes", path,
				PBOX_CONF_FILE_MAX);
			goto out;
		}
		if (got == 0)
			break;
	}
	conf->exposed = (st.st_mode & (S_IRWXG | S_IRWXO)) != 0;
	ret = pbox_conf_text(conf, path, text, n, err);
out:
	if (text != NULL)
		explicit_bzero(text, n);
	free(text);
	close(fd);
	return ret;
}

bool
pbox_conf_exposed(const struct pbox_conf *conf)
{
	return conf->exposed;
}
