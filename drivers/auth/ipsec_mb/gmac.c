/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <intel-ipsec-mb.h>

#include <pbox_auth.h>

/* Digests by Intel's Multi-Buffer Crypto library, which multiplies four blocks at a time where the
 * CPU has VPCLMULQDQ. Its direct functions keep nothing between calls. */

static IMB_MGR *mgr; /* a table of functions, read only once made */
static const uint8_t nonce[12];

static bool
gmac_is_usable(void)
{
	return mgr != NULL;
}

static void
gmac_init(void *state, const uint8_t key[PBOX_AUTH_JOB_KEY_LEN])
{
	IMB_AES256_GCM_PRE(mgr, key, (struct gcm_key_data *)state);
}

static void
gmac_digest(const void *state, const void *payload, size_t len, uint8_t out[PBOX_AUTH_DIGEST_LEN])
{
	const struct gcm_key_data *key = state;
	struct gcm_context_data ctx;

	IMB_AES256_GMAC_INIT(mgr, key, &ctx, nonce, sizeof(nonce));
	IMB_AES256_GMAC_UPDATE(mgr, key, &ctx, payload, len);
	IMB_AES256_GMAC_FINALIZE(mgr, key, &ctx, out, PBOX_AUTH_DIGEST_LEN);
}

static const struct pbox_auth_ops ops = {
	.name = "ipsec-mb",
	.rank = 1,
	.usable = gmac_is_usable,
	.state_len = sizeof(struct gcm_key_data),
	.init = gmac_init,
	.digest = gmac_digest,
};

static void __attribute__((constructor)) setup(void)
{
	IMB_MGR *m = alloc_mb_mgr(0);
	IMB_ARCH arch;

	if (m == NULL)
		return;
	init_mb_mgr_auto(m, &arch);
	if (imb_get_errno(m) != 0 || arch == IMB_ARCH_NONE || arch == IMB_ARCH_NOAESNI) {
		free_mb_mgr(m);
		return;
	}
	mgr = m;
	pbox_auth_register(&ops);
}
