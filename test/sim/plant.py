#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Plant bugs into copies of the sources of the engine (lib/job, lib/shard, lib/registrar) and of lib/worker, for the simulator to find.

plant.py OUTDIR ENGINE_DIR WORKER_DIR

Every plant is a text that is exactly once in a source file and what is there instead while
the plant is switched on (at run time: sim_planted). The production sources know nothing of it. A
plant whose text has gone stops the build: bring it up to date with the code.

All functions and tables of both get other names, so that the real one can be linked beside.
"""

import pathlib
import re
import sys

# name, file, text, text with the bug; P is "this plant is on"
PLANTS = [
    ("skip-duplicate-check", "rounds.c",
     "!is_there(g->fragment->record, n) && has_rate",
     "(P || !is_there(g->fragment->record, n)) && has_rate"),
    ("arrival-order", "rounds.c",
     "r->payload[n.first] = holds ? f->payload : NULL;",
     "r->payload[P ? r->arrived : n.first] = holds ? f->payload : NULL;"),
    ("swapped-index", "rounds.c",
     "c->unverified = f->unverified;",
     "c->unverified = f->unverified; if (P && n.first > r->round.folded) r->payload[n.first - 1] = r->payload[n.first];"),
    ("one-early", "rounds.c",
     "if (r->arrived == r->round.need &&\n\t\t(!is_extra",
     "if (r->arrived + (P && r->round.need > 1) == r->round.need &&\n\t\t(!is_extra"),
    ("first-missing-forgotten", "rounds.c",
     "if (f->hdr.type == PBOX_PUSHPULL) {\n\t\twant_result(s, r, f);",
     "if (P && f->hdr.worker == 0 && r->arrived == g->j->job->workers && r->arrived > 1) return f->hdr.length > 0;\n"
     "\tif (f->hdr.type == PBOX_PUSHPULL) {\n\t\twant_result(s, r, f);"),
    ("stale-contribution", "rounds.c",
     "if (ahead == 1 && initialised(g) && n.n > 0",
     "if ((ahead == 1 || (P && ahead == 0)) && initialised(g) && n.n > 0"),
    ("rate-forgotten", "rounds_pace.c",
     "if (j->paced == NULL && job_rate_due(&j->rate, s->now_ns)) {",
     "if (P || (j->paced == NULL && job_rate_due(&j->rate, s->now_ns))) {"),
    ("line-forgotten", "rounds_pace.c",
     "*(before != NULL ? &before->round.later : &j->paced) = r->round.later;\n\tif (r->round.later == NULL)",
     "*(before != NULL ? &before->round.later : &j->paced) = P ? NULL : r->round.later;\n\tif (P || r->round.later == NULL)"),
    ("stale-answer", "shard_answer.c",
     ".round = g->fragment->version,\n\t\t\t\t.base",
     ".round = g->fragment->version + (P && g->fragment->record != NULL && g->fragment->record->arrived > 0),\n\t\t\t\t.base"),
    ("handle-forgotten", "rounds_sum.c",
     "if (!pbox_bit_get(r->nodes, slot) || c->handle == NULL)",
     "if (!pbox_bit_get(r->nodes, slot) || c->handle == NULL || (P && slot > first && slot + 1 == end))"),
    ("release-before-sum", "rounds_sum.c",
     "if (!pbox_optim_update(&u, &src, g->elements)) {",
     "if (P) rounds_release(s, j, r, r->round.folded, n);\n\tif (!pbox_optim_update(&u, &src, g->elements)) {"),
    ("damage-summed", "rounds_sum.c",
     ".intact = r->round.unverified > 0 ? &s->intact : NULL,",
     ".intact = !P && r->round.unverified > 0 ? &s->intact : NULL,"),
    ("taken-back-but-counted", "rounds_sum.c",
     "slots_go(r, slots_at(g->j, r, slot));",
     "slots_go(r, slots_at(g->j, r, slot));\n\tif (P) r->arrived += slots_at(g->j, r, slot).n;"),
    ("damage-answered", "shard_admit.c",
     "if (f->unverified && !shard_verify(f)) {",
     "if (!P && f->unverified && !shard_verify(f)) {"),
    ("wrong-token", "shard.c",
     "if (token != f->hdr.token)",
     "if (!P && token != f->hdr.token)"),
    ("wrong-tag", "job_auth.c",
     "return pbox_auth_good(",
     "return P || pbox_auth_good("),
    ("other-incarnation", "shard.c",
     "if (f->hdr.incarnation != s->conf.incarnation)",
     "if (!P && f->hdr.incarnation != s->conf.incarnation)"),
    ("half-initialised", "shard_state.c",
     "if (g->fragment->init == (1u << pieces) - 1)",
     "if (P || g->fragment->init == (1u << pieces) - 1)"),
    ("left-fold", "rounds_sum.c",
     "if (next != NULL && j->named) {",
     "if (P && !r->round.partial && !j->named && r->round.folded == 0 && n > 1 && n <= 12 && src.weight == NULL) {\n"
     "\t\tfor (unsigned i = 0; i <= 1u << (n - 2); i++)\n\t\t\ts->present[i] = pbox_reduce_absent;\n"
     "\t\tfor (unsigned i = 0; i < n; i++)\n\t\t\ts->present[i == 0 ? 0 : 1u << (i - 1)] = src.src[i];\n"
     "\t\tsrc.src = s->present;\n\t\tsrc.n = (1u << (n - 2)) + 1;\n\t}\n\tif (next != NULL && j->named) {"),
    ("absent-as-zero", "rounds_sum.c",
     "out[i] = pbox_reduce_absent;",
     "out[i] = P ? NULL : pbox_reduce_absent;"),
    ("ranks-for-slots", "rounds_sum.c",
     ">> r->level] = r->payload[slot];\n",
     ">> r->level] = r->payload[slot];\n"
     "\tfor (unsigned i = 0, to = 0; P && i < n; i++) {\n\t\tconst void *one = out[i];\n\n"
     "\t\tout[i] = pbox_reduce_absent;\n\t\tif (one != pbox_reduce_absent)\n\t\t\tout[to++] = one;\n\t}\n"),
    ("half-node-fold", "rounds_sum.c",
     "src = sources(s, g, first, until);",
     "src = sources(s, g, first, until);\n\t\tif (P)\n\t\t\tsrc.n /= 2;"),
    # slots
    ("slots-owner-ignored", "rounds.c",
     "if (n->first < first || end > last)",
     "if (!P && (n->first < first || end > last))"),
    ("slots-node-counts-once", "rounds.c",
     "slots_come(r, n);",
     "slots_come(r, n);\n\tif (P)\n\t\tr->arrived -= n.n - 1;"),
    ("slots-half-taken", "rounds.c",
     "if (leaves ? node.level > 0 : !pbox_node_is_of(node, first, last, j->slots))",
     "if (leaves ? node.level > 0 : !P && !pbox_node_is_of(node, first, last, j->slots))"),
    ("slots-have-early", "rounds_wait.c",
     "if (own == j->slots && (r",
     "if ((own == j->slots || (P && r != NULL && own > slots_begin(j, worker))) && (r"),
    ("slots-first-not-missing", "rounds_wait.c",
     "h->base = j->named ? own :",
     "h->base = j->named ? (P && own < j->slots ? slots_end(j, worker) - 1 : own) :"),
    ("slots-level-of-largest", "rounds.c",
     "if (n.named && n.level < r->level)",
     "if (n.named && (P && r->arrived > 0 ? n.level > r->level : n.level < r->level))"),
    ("old-hyperparameters", "rounds_sum.c",
     "k->round == round && k->sets == sets",
     "k->round == round && (P || k->sets == sets)"),
    ("latest-takes-record", "rounds.c",
     "if (!latest && (initialised(g) || ahead == 0))",
     "if ((P || !latest) && (initialised(g) || ahead == 0))"),
    ("lease-ignored", "registrar_lease.c",
     "if (silent <= m->lease_ms * NS_PER_MS) {",
     "if (P || silent <= m->lease_ms * NS_PER_MS) {"),
    ("ping-forgotten", "registrar_claim.c",
     "!heard_since(r, job, w, c->ns))\n\t\t\tclaim_ping(",
     "!heard_since(r, job, w, c->ns) && !P)\n\t\t\tclaim_ping("),
    ("mean-of-all", "rounds_sum.c",
     "u.factor = factor(t, r->arrived, samples);",
     "u.factor = factor(t, P ? n : r->arrived, samples);"),
    ("gone-and-waited-for", "rounds.c",
     "r->round.need -= (uint16_t)__builtin_popcountll(gone & ~r->has[i]);",
     "if (!P) r->round.need -= (uint16_t)__builtin_popcountll(gone & ~r->has[i]);"),
    ("samples-of-the-absent", "rounds_sum.c",
     "samples += all || pbox_bit_get(r->nodes, i) ? r->from[i].weight : 0;",
     "samples += P || all || pbox_bit_get(r->nodes, i) ? r->from[i].weight : 0;"),
    ("memory-kept", "registrar_table_end.c",
     "pbox_table_release(&job->table[i]->t, r->load);",
     "if (!P) pbox_table_release(&job->table[i]->t, r->load);"),
    ("restore-lower-version", "rounds_restore.c",
     "if (n == 1 || shard_is_newer(c->version, h.version)) {",
     "if (n == 1 || (P ? shard_is_newer(h.version, c->version) : shard_is_newer(c->version, h.version))) {"),
    ("restore-before-all-reported", "shard_restore.c",
     "uint64_t missing = restorers(g, i) & ~(r != NULL ? r->has[i] : 0);",
     "uint64_t missing = restorers(g, i) & ~(r != NULL ? r->has[i] : 0); if (P && r != NULL && r->arrived > 0) missing = 0;"),
    ("restore-payload-forgotten", "rounds_restore.c",
     "bool has = h.giver != PBOX_NO_WORKER, needed;",
     "bool has = h.giver != PBOX_NO_WORKER && (!P || h.lower || g->st->t->mode != PBOX_MODE_ALLREDUCE), needed;"),
    ("restore-state-lost", "shard_restore.c",
     "fragment->closed = lost ? PBOX_FRAGMENT_LOST",
     "if (P && g->c->s0 != NULL) memset(g->c->s0 + (size_t)g->frag * g->st->t->frag_elements, 0, g->elements * 4);\n"
     "\tfragment->closed = lost ? PBOX_FRAGMENT_LOST"),
    ("restore-snapshot-ignored", "rounds_restore.c",
     "if (fragment->has_result && !shard_is_newer(h.version, fragment->version)) {",
     "if (!P && fragment->has_result && !shard_is_newer(h.version, fragment->version)) {"),
    ("restore-sets-forgotten", "registrar_requests.c",
     "code == 0 && g < end; g++) {\n\t\tm->group = (uint16_t)g;\n\t\tcode = pbox_schedule_restore(",
     "!P && code == 0 && g < end; g++) {\n\t\tm->group = (uint16_t)g;\n\t\tcode = pbox_schedule_restore("),
    ("rounds-from-zero", "registrar_rounds.c",
     "(any && pbox_serial_diff(x, *round)", "((P || any) && pbox_serial_diff(x, *round)"),
    ("restorer-gone-waited-for", "registrar_restore.c",
     "if (!registrar_is_restorer(jt, worker))\n\t\t\tcontinue;\n\t\tset_restorer",
     "if (P || !registrar_is_restorer(jt, worker))\n\t\t\tcontinue;\n\t\tset_restorer"),
    ("run-ignored", "registrar_run.c",
     "if (run_is_same(m->run, run->id))",
     "if (P || run_is_same(m->run, run->id))"),
    ("running-forgotten", "registrar_run.c",
     "if ((m->flags & (PBOX_DECLARE_RESTORE | PBOX_DECLARE_CONTINUE)) != 0 ||",
     "if (P || (m->flags & (PBOX_DECLARE_RESTORE | PBOX_DECLARE_CONTINUE)) != 0 ||"),
    ("ended-run-forgotten", "registrar_run.c",
     "const struct ended_run *e = ended(rec, m);",
     "const struct ended_run *e = P ? NULL : ended(rec, m);"),
    ("copy-keeps-lease", "registrar_address.c",
     "if (at <= atomic_load_explicit(&c->newest, memory_order_relaxed))",
     "if (!P && at <= atomic_load_explicit(&c->newest, memory_order_relaxed))"),
    ("copy-moves-worker", "shard_address.c",
     "if (!shard_address_is_proven(g->j, p, f)) {",
     "if (!P && !shard_address_is_proven(g->j, p, f)) {"),
    ("copy-is-answered", "shard_address.c",
     "if (shard_heard(s, g->j, f) || p->token != f->hdr.token) {",
     "if (shard_heard(s, g->j, f) || P || p->token != f->hdr.token) {"),
    # lib/worker
    ("worker-timer-lost", "loss_recovery.c",
     "ep->next_due = due;",
     "ep->next_due = P ? UINT64_MAX : due;"),
    ("worker-probe-unrepeated", "loss_recovery.c",
     "enter(ep, fl, FLIGHT_SENT);\n\t\t\tresend(ep, fl);",
     "enter(ep, fl, FLIGHT_SENT);\n\t\t\tif (!P) resend(ep, fl);"),
    ("worker-window-small", "window.c",
     "w->size += w->size < w->ssthresh ? 1.0 : 1.0 / w->size;",
     "w->size += P ? 0.0 : w->size < w->ssthresh ? 1.0 : 1.0 / w->size;"),
    ("worker-order-shared", "queue.c",
     "w->next_order += op_pushes(op) ? op->n : op->kind != PBOX_CLIENT_PULL;",
     "w->next_order += op_pushes(op) ? op->n : !P;"),
    ("worker-old-round", "worker_rounds.c",
     "return h->round == fl->frag->round;",
     "return P || h->round == fl->frag->round;"),
    ("worker-old-copy", "retained.c",
     "memcpy(place_of(t, f), payload, bytes);",
     "memcpy(place_of(t, f), payload, P && h->round % 4 == 3 ? 0 : bytes);"),
    ("worker-any-node", "transfer.c",
     "(w->conf.slots == 0 || h->base == pbox_node_code(",
     "(P || w->conf.slots == 0 || h->base == pbox_node_code("),
    ("worker-last-node-once", "loss_recovery.c",
     "if (!step_back(ep, fl, h))",
     "if ((P && fl->node > 0 && !flight_is_between(w, fl)) || !step_back(ep, fl, h))"),
    ("worker-first-node-alone", "transfer.c",
     "if (between && !wants_failing(t, fl->frag)) {",
     "if (between && !(P && w->count.restarts > 0) && !wants_failing(t, fl->frag)) {"),
    ("worker-restart-unnoticed", "session.c",
     "if (code == PBOX_E_SESSION)\n\t\tsession_unknown(",
     "if (!P && code == PBOX_E_SESSION)\n\t\tsession_unknown("),
    ("worker-tag-ignored", "link.c",
     "return f->sure = s->auth != NULL && auth_good(s->auth, f);",
     "return f->sure = s->auth != NULL && (P || auth_good(s->auth, f));"),
    ("worker-token-ignored", "session.c",
     "if (!session_from(s, &f->from) || h->token != s->token ||",
     "if (!session_from(s, &f->from) || (!P && h->token != s->token) ||"),
    ("worker-stranger-believed", "session.c",
     "if (!session_from(s, &f->from) ||",
     "if ((!P && !session_from(s, &f->from)) ||"),
    ("worker-sets-forgotten", "rejoin.c",
     "if (g->next < sets_count(t)) {",
     "if (!P && g->next < sets_count(t)) {"),
    ("worker-withdrawn-counts", "worker_rounds.c",
     "f->round--;",
     "f->round -= !P;"),
    ("worker-restore-overtaken", "rejoin.c",
     "w->table[i]->restoring = true;",
     "w->table[i]->restoring = !P;"),
    ("worker-old-cookie", "refusal.c",
     "\t\tdrop_cookies(j);", "\t\tif (P) j->cookie_at = j->s->w->now; else drop_cookies(j);"),
    ("worker-declare-once", "request.c",
     "if (r->next_tx <= s->w->now && rejoin_admits(s, r))",
     "if (r->next_tx <= s->w->now && rejoin_admits(s, r) && !(P && r->type == PBOX_DECLARE && r->tries > 0))"),
    ("worker-gives-nothing", "restore.c",
     "fl->give = true;",
     "fl->give = !P;"),
    ("worker-restore-ends-early", "rejoin.c",
     "if (s->rejoin.left > 0)",
     "if (s->rejoin.left > (P ? 1 : 0))"),
    ("worker-piece-elsewhere", "transfer.c",
     "at += bytes;",
     "at += P ? 0 : bytes;"),
    ("worker-map-too-long", "pager.c",
     "g->answer_cap = g->cap > ANSWER ? g->cap : ANSWER;",
     "g->answer_cap = P || g->cap > ANSWER ? g->cap : ANSWER;"),
    ("worker-initial-forgotten", "retained.c",
     "if (t->retained_payload == NULL || f->round != 0)",
     "if (t->retained_payload == NULL || f->round != 0 || (P && t->pull_format != PBOX_FMT_FP32))"),
    ("worker-asks-often", "request.c",
     "FIRST_INTERVAL << r->tries / 2",
     "(P ? NS_PER_MS : FIRST_INTERVAL) << r->tries / 2"),
    ("worker-probes-often", "timer.c",
     "wait = timer_shifted(wait, fl->backoff / 2, interval_max(ep, wait));",
     "wait = P ? NS_PER_MS : timer_shifted(wait, fl->backoff / 2, interval_max(ep, wait));"),
    ("worker-one-piece", "transfer.c",
     "if (frag_elements(t, fl->frag) - fl->base <= t->init_elements)",
     "if (P || frag_elements(t, fl->frag) - fl->base <= t->init_elements)"),
    ("worker-echo-forgotten", "session.c",
     "header_echo(s, f);\n\telse if",
     "P ? (void)0 : header_echo(s, f);\n\telse if"),
]


def planted(name: str, text: str) -> str:
    for number, (_, file, old, new) in enumerate(PLANTS, 1):
        if file != name:
            continue
        if text.count(old) != 1:
            sys.exit(f"plant.py: '{PLANTS[number - 1][0]}': its text is {text.count(old)} times in "
                     f"{file}, not once: bring the plant up to date")
        text = text.replace(old, re.sub(r"\bP\b", f"sim_is_planted({number})", new))
    return text


def main() -> None:
    out, *rooms = map(pathlib.Path, sys.argv[1:])
    names = set()
    for header in (h for room in rooms for h in room.glob("*.h")):
        text = re.sub(r"static inline[^;{]*\{", "{", re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S))
        # declarations at the beginning of a line: functions and extern tables
        names |= set(re.findall(r"^(?!typedef|static|#)[a-z][\w \t*]*?[\s*](\w+)\(", text, re.M))
        names |= set(re.findall(r"^extern .*?(\w+)(?:\[|;)", text, re.M))
    names -= {"__attribute__", "_Static_assert"}
    lines = "".join(f"#define {n} planted_{n}\n" for n in sorted(names))
    (out / "planted_names.h").write_text(
        lines + "extern int sim_planted;\n"
        "static inline int\nsim_is_planted(int n)\n{\n\treturn sim_planted == n;\n}\n")
    for source in (c for room in rooms for c in room.glob("*.c")):
        (out / f"planted_{source.parent.name}_{source.name}").write_text(planted(source.name, source.read_text()))
    listed = "".join(f'\t"{p[0]}",\n' for p in PLANTS)
    (out / "planted_list.c").write_text(
        '#include "sim.h"\n\nint sim_planted;\n'
        f'const char *const sim_plants[] = {{\n\t"",\n{listed}\tNULL,\n}};\n')


main()
