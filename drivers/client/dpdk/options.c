/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "dpdk.h"

/* transport_args: the options after the "--". */

int
dpdk_fail(struct pbox_client_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return code;
}

static int
dpdk_address(struct dpdk_options *o, char *value, struct pbox_client_error *err)
{
	char *slash = strchr(value, '/'), *end = NULL;
	unsigned long prefix = slash != NULL ? strtoul(slash + 1, &end, 10) : 33;
	struct in_addr a;

	if (slash != NULL)
		*slash = 0;
	if (end == NULL || end == slash + 1 || *end != 0 || prefix > 32 ||
		inet_pton(AF_INET, value, &a) != 1 || a.s_addr == 0)
		return dpdk_fail(err, PBOX_C_INVALID,
			"transport_args: address= takes an IPv4 address and its prefix, as in 10.0.0.2/24");
	o->ip = a.s_addr;
	o->prefix_len = (uint8_t)prefix;
	return 0;
}

static int
option(struct dpdk_options *o, char *word, struct pbox_client_error *err)
{
	char *value = strchr(word, '=');
	struct in_addr a;

	if (value == NULL)
		return dpdk_fail(err, PBOX_C_INVALID,
			"transport_args: '%s' is not NAME=VALUE; arguments of EAL come before the '--'",
			word);
	*value++ = 0;
	if (strcmp(word, "address") == 0)
		return dpdk_address(o, value, err);
	if (strcmp(word, "gateway") == 0) {
		if (inet_pton(AF_INET, value, &a) != 1)
			return dpdk_fail(err, PBOX_C_INVALID,
				"transport_args: gateway=%s is not an IPv4 address", value);
		o->gateway = a.s_addr;
	} else if (strcmp(word, "port") == 0) {
		snprintf(o->port, sizeof(o->port), "%s", value);
	} else if (strcmp(word, "idle") == 0 &&
		   (strcmp(value, "poll") == 0 || strcmp(value, "sleep") == 0)) {
		o->sleep = value[0] == 's';
	} else if (strcmp(word, "zero-copy") == 0 &&
		   (strcmp(value, "auto") == 0 || strcmp(value, "off") == 0)) {
		o->copy = value[0] == 'o';
	} else {
		return dpdk_fail(err, PBOX_C_INVALID,
			"transport_args: %s=%s is not known; there are address=A.B.C.D/PREFIX, gateway=A.B.C.D, port=NAME, idle=poll|sleep, zero-copy=auto|off",
			word, value);
	}
	return 0;
}

/** Start of the word "--", or NULL. */
static const char *
find_own(const char *args)
{
	for (const char *p = strstr(args, "--"); p != NULL; p = strstr(p + 2, "--"))
		if ((p == args || strchr(DPDK_BLANKS, p[-1]) != NULL) &&
			(p[2] == 0 || strchr(DPDK_BLANKS, p[2]) != NULL))
			return p;
	return NULL;
}

int
dpdk_options(struct dpdk_options *o, const char *args, size_t *eal, struct pbox_client_error *err)
{
	const char *own = args != NULL ? find_own(args) : NULL;
	int rc = 0;

	*o = (struct dpdk_options){0};
	if (own == NULL)
		return dpdk_fail(err, PBOX_C_INVALID,
			"transport 'dpdk' needs transport_args: arguments of EAL, '--', and address=A.B.C.D/PREFIX");
	*eal = (size_t)(own - args);
	own += 2;
	while (rc == 0) {
		char word[DPDK_WORD];
		size_t len;

		own += strspn(own, DPDK_BLANKS);
		len = strcspn(own, DPDK_BLANKS);
		if (len == 0)
			break;
		if (len >= sizeof(word))
			return dpdk_fail(err, PBOX_C_INVALID,
				"transport_args: '%.40s...' is longer than %d bytes", own,
				DPDK_WORD - 1);
		memcpy(word, own, len);
		word[len] = 0;
		rc = option(o, word, err);
		own += len;
	}
	if (rc == 0 && o->ip == 0)
		rc = dpdk_fail(err, PBOX_C_INVALID,
			"transport_args: address=A.B.C.D/PREFIX is missing after the '--': the port's own address, which the kernel does not know");
	return rc;
}
