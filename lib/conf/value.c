/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Text of an option to a value of its type. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf_priv.h"

static int value_wrong(char *why, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int
value_wrong(char *why, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, size, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

unsigned
pbox_conf_cores_count(const struct pbox_conf_cores *set)
{
	unsigned n = 0;

	for (unsigned i = 0; i < PBOX_CONF_CORES_MAX / 64; i++)
		n += (unsigned)__builtin_popcountll(set->bits[i]);
	return n;
}

size_t
conf_type_size(enum pbox_conf_type type)
{
	switch (type) {
	case PBOX_CONF_BOOL:
		return sizeof(bool);
	case PBOX_CONF_U32:
		return sizeof(uint32_t);
	case PBOX_CONF_U64:
	case PBOX_CONF_SIZE:
	case PBOX_CONF_DURATION:
		return sizeof(uint64_t);
	case PBOX_CONF_ENUM:
		return sizeof(int);
	case PBOX_CONF_IPV4:
		return 4;
	case PBOX_CONF_PREFIX:
		return sizeof(struct pbox_conf_prefix);
	case PBOX_CONF_CORES:
		return sizeof(struct pbox_conf_cores);
	case PBOX_CONF_SECRET:
		return sizeof(struct pbox_conf_secret);
	case PBOX_CONF_STRING:
	case PBOX_CONF_PATH:
		break;
	}
	return 0;
}

/* Decimal digits at *text; moves *text after them. strtoull() would take signs and spaces. */
static bool
parse_digits(const char **text, uint64_t *value)
{
	const char *s = *text;
	uint64_t v = 0;

	if (*s < '0' || *s > '9')
		return false;
	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(v, 10u, &v) ||
			__builtin_add_overflow(v, (unsigned)(*s - '0'), &v))
			return false;
	*text = s;
	*value = v;
	return true;
}

static const struct suffix {
	const char *text;
	uint64_t factor;
} size_suffixes[] = {{"", 1}, {"K", 1u << 10}, {"M", 1u << 20}, {"G", 1u << 30}, {"KiB", 1u << 10},
	{"MiB", 1u << 20}, {"GiB", 1u << 30}, {NULL, 0}},
  time_suffixes[] = {{"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {NULL, 0}},
  no_suffix[] = {{"", 1}, {NULL, 0}};

static int
value_parse_number(
	const struct pbox_conf_option *o, const char *text, uint64_t *value, char *why, size_t size)
{
	const struct suffix *f = no_suffix;
	const char *form = "a whole number", *s = text;
	uint64_t v, max = o->max;
	char range[160];

	if (o->type == PBOX_CONF_SIZE) {
		f = size_suffixes;
		form = "a size like 4096, 32K, 2M or 1G";
	} else if (o->type == PBOX_CONF_DURATION) {
		f = time_suffixes;
		form = "a time with its unit, like 30s, 20ms or 250us";
	}
	if (o->zero != NULL && strcmp(text, o->zero) == 0) {
		*value = 0;
		return 0;
	}
	if (!parse_digits(&s, &v))
		return value_wrong(why, size, "is not %s%s%s", form, o->zero != NULL ? ", or " : "",
			o->zero != NULL ? o->zero : "");
	while (*s == ' ')
		s++;
	while (f->text != NULL && strcmp(f->text, s) != 0)
		f++;
	if (f->text == NULL && !(v == 0 && *s == '\0'))
		return value_wrong(why, size, "is not %s%s%s", form, o->zero != NULL ? ", or " : "",
			o->zero != NULL ? o->zero : "");
	if (max == 0)
		max = o->type == PBOX_CONF_U32 ? UINT32_MAX : UINT64_MAX;
	conf_format_range(o, range, sizeof(range));
	if (__builtin_mul_overflow(v, f->text != NULL ? f->factor : 1, &v) || v < o->min || v > max)
		return value_wrong(
			why, size, "is out of range%s%s", range[0] != '\0' ? ": " : "", range);
	*value = v;
	return 0;
}

static int
parse_bool(const char *text, bool *value, char *why, size_t size)
{
	static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};

	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(text, words[i]) == 0) {
			*value = i & 1;
			return 0;
		}
	}
	return value_wrong(why, size, "is not yes or no");
}

static int
parse_enum(const struct pbox_conf_option *o, const char *text, int *value, char *why, size_t size)
{
	struct conf_nearest n = {.word = text};
	char range[160];

	for (int i = 0; o->names[i] != NULL; i++) {
		if (strcmp(o->names[i], text) == 0) {
			*value = o->first + i;
			return 0;
		}
		conf_nearer(&n, o->names[i]);
	}
	conf_format_range(o, range, sizeof(range));
	if (n.best != NULL)
		return value_wrong(why, size, "is not %s: did you mean '%s'?", range, n.best);
	return value_wrong(why, size, "is not %s", range);
}

static int
parse_prefix(const char *text, struct pbox_conf_prefix *value, char *why, size_t size)
{
	const char *slash = strchr(text, '/'), *s;
	char addr[INET_ADDRSTRLEN];
	struct pbox_conf_prefix p;
	uint64_t len;

	if (slash != NULL && (size_t)(slash - text) < sizeof(addr)) {
		memcpy(addr, text, (size_t)(slash - text));
		addr[slash - text] = '\0';
		s = slash + 1;
		if (inet_pton(AF_INET, addr, p.addr) == 1 && parse_digits(&s, &len) && *s == '\0' &&
			len >= 1 && len <= 32) {
			p.len = (uint8_t)len;
			*value = p;
			return 0;
		}
	} else if (inet_pton(AF_INET, text, p.addr) == 1) {
		return value_wrong(why, size, "lacks the length of its network: like %s/24", text);
	}
	return value_wrong(
		why, size, "is not an IPv4 address with a network length, like 10.0.0.1/24");
}

static int
parse_cores(const char *text, struct pbox_conf_cores *value, char *why, size_t size)
{
	struct pbox_conf_cores set = {0};
	const char *s = text;

	for (;;) {
		uint64_t from, to;

		while (*s == ' ')
			s++;
		if (!parse_digits(&s, &from))
			break;
		to = from;
		if (*s == '-') {
			s++;
			if (!parse_digits(&s, &to))
				break;
		}
		if (to >= PBOX_CONF_CORES_MAX || to < from)
			return value_wrong(why, size,
				"is out of range: cores are 0 to %u, lower-upper",
				PBOX_CONF_CORES_MAX - 1);
		for (; from <= to; from++) {
			if (pbox_conf_core_in(&set, (unsigned)from))
				return value_wrong(
					why, size, "names core %u twice", (unsigned)from);
			set.bits[from / 64] |= UINT64_C(1) << (from % 64);
		}
		while (*s == ' ')
			s++;
		if (*s == '\0') {
			*value = set;
			return 0;
		}
		if (*s++ != ',')
			break;
	}
	return value_wrong(why, size, "is not a list of cores like 0,2-4");
}

/* Not a FIFO or a device: opening or reading those may never return. */
const char *
conf_as_user(int error, char *buf, size_t size)
{
	const struct passwd *user = error == EACCES ? getpwuid(geteuid()) : NULL;

	buf[0] = '\0';
	if (error == EACCES && user != NULL)
		snprintf(buf, size, " as user %s", user->pw_name);
	else if (error == EACCES)
		snprintf(buf, size, " as user %u", (unsigned)geteuid());
	return buf;
}

static int
value_read_secret(
	const char *path, size_t least, struct pbox_conf_secret *value, char *why, size_t size)
{
	char buf[PBOX_CONF_SECRET_MAX + 3]; /* room for \r\n and to see that it is too long */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), ret = -EINVAL;
	int error = errno;
	struct stat st;
	char user[48];
	ssize_t n;

	if (fd < 0)
		return value_wrong(why, size, "cannot read %s%s: %s", path,
			conf_as_user(error, user, sizeof(user)), strerror(error));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		value_wrong(why, size, "%s is not a regular file", path);
		goto out;
	}
	n = read(fd, buf, sizeof(buf));
	if (n < 0) {
		value_wrong(why, size, "cannot read %s: %s", path, strerror(errno));
		goto out;
	}
	if (n > 0 && buf[n - 1] == '\n')
		n--;
	if (n > 0 && buf[n - 1] == '\r')
		n--;
	if (n == 0 || n > PBOX_CONF_SECRET_MAX) {
		value_wrong(why, size, n == 0 ? "%s is empty" : "%s is longer than %d bytes", path,
			PBOX_CONF_SECRET_MAX);
		goto out;
	}
	if ((size_t)n < least) {
		value_wrong(why, size,
			"%s is too short: at least %zu characters, as of openssl rand -hex 16",
			path, least);
		goto out;
	}
	memset(value, 0, sizeof(*value));
	value->len = (uint16_t)n;
	value->exposed = (st.st_mode & (S_IRWXG | S_IRWXO)) != 0;
	memcpy(value->bytes, buf, (size_t)n);
	ret = 0;
out:
	explicit_bzero(buf, sizeof(buf));
	close(fd);
	return ret;
}

static int
parse_secret(const struct pbox_conf_option *o, const char *text, struct pbox_conf_secret *value,
	char *why, size_t size)
{
	size_t n = strlen(text);

	if (strncmp(text, "file:", 5) == 0)
		return value_read_secret(text + 5, (size_t)o->min, value, why, size);
	if (n < o->min)
		return value_wrong(why, size,
			"is too short: at least %llu characters, or file:PATH",
			(unsigned long long)o->min);
	if (n > PBOX_CONF_SECRET_MAX)
		return value_wrong(
			why, size, "is too long: at most %d bytes", PBOX_CONF_SECRET_MAX);
	memset(value, 0, sizeof(*value));
	value->len = (uint16_t)n;
	value->plain = true;
	memcpy(value->bytes, text, n);
	return 0;
}

static int
parse_string(
	const struct pbox_conf_option *o, const char *text, char *value, char *why, size_t size)
{
	size_t n = strlen(text);

	if (n >= o->size)
		return value_wrong(why, size, "is too long: at most %zu characters", o->size - 1);
	memset(value, 0, o->size);
	memcpy(value, text, n);
	return 0;
}

int
conf_parse(const struct pbox_conf_option *o, const char *text, void *member, char *why, size_t size)
{
	uint64_t number;
	int ret;

	if (*text == '\0')
		return value_wrong(why, size, "has no value");
	for (const char *s = text; *s != '\0'; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return value_wrong(why, size, "holds a control character");
	switch (o->type) {
	case PBOX_CONF_BOOL:
		return parse_bool(text, member, why, size);
	case PBOX_CONF_U32:
		ret = value_parse_number(o, text, &number, why, size);
		if (ret == 0)
			*(uint32_t *)member = (uint32_t)number;
		return ret;
	case PBOX_CONF_U64:
	case PBOX_CONF_SIZE:
	case PBOX_CONF_DURATION:
		return value_parse_number(o, text, member, why, size);
	case PBOX_CONF_ENUM:
		return parse_enum(o, text, member, why, size);
	case PBOX_CONF_IPV4:
		if (inet_pton(AF_INET, text, member) == 1)
			return 0;
		return value_wrong(why, size, "is not an IPv4 address like 10.0.0.1");
	case PBOX_CONF_PREFIX:
		return parse_prefix(text, member, why, size);
	case PBOX_CONF_CORES:
		if (o->zero != NULL && strcmp(text, o->zero) == 0) {
			memset(member, 0, sizeof(struct pbox_conf_cores));
			return 0;
		}
		return parse_cores(text, member, why, size);
	case PBOX_CONF_SECRET:
		return parse_secret(o, text, member, why, size);
	case PBOX_CONF_STRING:
	case PBOX_CONF_PATH:
		return parse_string(o, text, member, why, size);
	}
	return value_wrong(why, size, "has an unknown type");
}
