# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""pbox-ctl: snapshots of jobs."""

import argparse
import sys
import time

from ctl_base import job_name, refused, show
from pbox_box import visible


def add_snapshot(parsers):
    p = parsers.add_parser("snapshot", help="take a snapshot of all tables of a job now")
    p.add_argument("job", metavar="JOB", type=job_name)
    p.add_argument("--round", type=round_number, metavar="R",
                   help="of just this round, which is to come; a job at several boxes needs it, the same at each")
    p.add_argument("-w", "--wait", type=float, metavar="SECONDS", default=60.0,
                   help="wait so long for it to be written (default 60; 0: not at all)")


def round_number(text):
    if not text.isdecimal() or not 0 < int(text) < 2**32:
        raise argparse.ArgumentTypeError(f"'{text}' is no round: 1 to 4294967295")
    return int(text)


def of_round(args):
    return args.job if args.round is None else f"{args.job},{args.round}"


def tables_of(answer, job):
    """table -> (taken, failed) of a job."""
    return {x["table"]: (x["taken"], x["failed"]) for x in answer.values()
            if isinstance(x, dict) and x.get("job") in (job, visible(job))}


def cmd_snapshot(box, args):
    before = box.ask("/pbox/snapshots")
    if refused(args, before):
        return 1
    answer = box.ask("/pbox/snapshot", of_round(args))
    if refused(args, answer):
        return 1
    if args.wait <= 0:
        show(args, answer, f"asked for {answer['tables']} tables: see pbox-ctl snapshots")
        return 0
    had, limit = tables_of(before, args.job), time.monotonic() + args.wait
    while time.monotonic() < limit:
        time.sleep(0.05)
        now = box.ask("/pbox/snapshots")
        has = tables_of(now, args.job)
        news = {t for t in has if has[t] != had.get(t)}
        if len(news) >= answer["tables"] and now["state"] == "idle" and now["waiting"] == 0:
            mine = [x for x in now.values() if isinstance(x, dict) and x.get("job") in (args.job, visible(args.job))]
            show(args, mine, "\n".join(describe(x) for x in mine))
            return 1 if any("error" in x for x in mine) else 0
    print(f"pbox-ctl: not written within {args.wait:g} s: see pbox-ctl snapshots", file=sys.stderr)
    return 1


def describe(x):
    text = f"{x['job']} table {x['table']}:"
    if "round" in x:
        text += (f" round {x['round']}, {x['bytes']} bytes, {x['age_s']} s ago (copied in {x['copy_ms']} ms, "
                 f"written in {x['write_ms']} ms); {x['taken']} taken")
    if x["failed"]:
        text += f", {x['failed']} failed"
    if "error" in x:
        text += f"; the last one: {x['error']}"
    return text


def add_snapshots(parsers):
    parsers.add_parser("snapshots", help="what became of the snapshots")


def cmd_snapshots(box, args):
    answer = box.ask("/pbox/snapshots")
    if refused(args, answer):
        return 1
    lines = [f"{answer['dir']}: {answer['state']}"
             + (f" (job {answer['job']}, table {answer['table']})" if "job" in answer else "")]
    lines += [f"{answer['loading']} tables are loading from their snapshots"] if answer.get("loading") else []
    lines += [describe(x) for x in answer.values() if isinstance(x, dict)]
    lines += [f"{x}: its next run begins with its snapshot" for k, x in answer.items()
              if k.startswith("restore_")]
    show(args, answer, "\n".join(lines))
    return 0


def add_restore(parsers):
    p = parsers.add_parser("restore", help="let the next run of a job begin with its newest good snapshot")
    p.add_argument("job", metavar="JOB", type=job_name)
    p.add_argument("--round", type=round_number, metavar="R",
                   help="with that of this round; a job at several boxes needs it, the same at each")
    p.add_argument("--withdraw", action="store_true", help="it shall not, after all")


def cmd_restore(box, args):
    answer = box.ask("/pbox/restore_withdraw" if args.withdraw else "/pbox/restore",
                     args.job if args.withdraw else of_round(args))
    if refused(args, answer):
        return 1
    show(args, answer, f"job '{visible(args.job)}': {answer['asked']}" + ("" if args.withdraw else "; its next run begins with it"))
    return 0
