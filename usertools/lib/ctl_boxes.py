# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""pbox-ctl: the boxes of a fleet, and chunks that go from one to another."""

import json
import os
import re
import sys
import time

from box_fleet import add_boxes_option
from ctl_base import counted, findings_of, job_name, others_of, refused, show, shown, size, table, with_others
from pbox_box import BoxError, entries, visible, visible_all

CLUSTER_OLD = 10  # seconds: pbox-agent writes each second


def on_the_way(x):
    """What this box knows of moves that are not done; empty: they are."""
    parts = [f"{counted(x['unshown'], 'worker')} {'has' if x['unshown'] == 1 else 'have'} not shown the map here"] if x["unshown"] else []
    parts += ["the rest of the moves follows in slices"] if x["more"] else []
    parts += [f"{counted(x['here'] - x['planned'], 'chunk')} of this box {'is' if x['here'] - x['planned'] == 1 else 'are'} still here"] if x["here"] > x["planned"] else []
    parts += [f"{counted(x['planned'] - x['here'], 'chunk')} {'is' if x['planned'] - x['here'] == 1 else 'are'} still to come here"] if x["here"] < x["planned"] else []
    parts += [f"{counted(x['restoring'], 'fragment')} that come here are not complete"] if x["restoring"] else []
    parts += [needed_text(x)] if x["needed"] else []
    return "; ".join(parts)


def needed_text(x):
    return f"of {counted(x['needed'], 'fragment')} that left, nobody has fetched yet what the optimiser has gathered: it is here alone"


def add_safe(parsers):
    p = parsers.add_parser("safe", help="may this box be stopped, and nothing is lost and no round waits? exit status 0 yes, 1 no; of a box of several, at that one")
    p.add_argument("-w", "--wait", type=float, metavar="SECONDS", default=0.0, help="wait so long for it")


def unsafe_texts(answer):
    """Why the box may not be stopped, for each job."""
    for _, x in entries(answer, "job"):
        parts = [f"{counted(x['here'], 'chunk')} of it {'is' if x['here'] == 1 else 'are'} here"] if x["here"] else []
        parts += [needed_text(x)] if x["needed"] else []
        parts += [f"{counted(x['unshown'], 'worker')} {'goes' if x['unshown'] == 1 else 'go'} by an older map, and would wait for this box"] if x["unshown"] else []
        parts += ["chunks come or leave"] if x["more"] and not parts else []
        if parts:
            yield f"job '{x['name']}': " + "; ".join(parts)


def until_done(args, limit, look):
    """look() until it names nothing that is left, or the limit; what is left is said as it changes."""
    end, said = time.monotonic() + limit, None
    while True:
        left = list(look())
        if not left or time.monotonic() >= end:
            return left
        if left != said and not args.json:
            print("waits: " + "; ".join(left), file=sys.stderr, flush=True)
        said = left
        time.sleep(0.1)


def cmd_safe(box, args):
    boxes = box.ask("/pbox/boxes")
    if boxes["boxes"] < 2:
        def look():
            jobs = box.ask("/pbox/jobs")["jobs"]
            return [f"{counted(jobs, 'job')} {'is' if jobs == 1 else 'are'} at this box alone: they wait until it is started again"] if jobs else []
    else:
        def look():
            return unsafe_texts(box.all_pages("/pbox/moving"))
    left = until_done(args, args.wait, look)
    lines = [f"no: {text}" for text in left] or ["yes: no job needs this box" + ("" if boxes["boxes"] < 2 else " now. The next map, change of a hyper-parameter or worker that begins waits for it, unless it is out (failover, when it is stopped)")]
    lines += ["    take the chunks away (pbox-ctl drain JOB BOX at the first box, pbox-agent drain BOX with etcd), and ask again with --wait"] if left and boxes["boxes"] > 1 else []
    show(args, {"safe": int(not left), "left": left}, "\n".join(lines))
    return 1 if left else 0


def add_boxes(parsers):
    add_boxes_option(parsers.add_parser("boxes", help="the boxes that its jobs are at, and which one this is, and which of them answer: exit status 1 if one does not"))


def cmd_boxes(box, args):
    answer = box.ask("/pbox/boxes")
    if refused(args, answer):
        return 1
    lines = [f"box {i}  {answer[f'box_{i}']}{'  this one' if i == answer['box'] else ''}"
             for i in range(answer["boxes"]) if f"box_{i}" in answer] or ["this box alone"]
    goes_on = dict(entries(box.all_pages("/pbox/moving"), "job")) if answer["boxes"] > 1 else {}
    for i, x in entries(box.all_pages("/pbox/jobs"), "job"):
        if "homes" not in x:
            continue
        lines.append(f"job '{x['name']}': map {x['map']}, chunks at each box: {x['homes']} ({', '.join(size(4 * int(n)) for n in x['elements_at'].split())} of parameters); box {x['decides']} decides"
                     + (f"; out: box {x['out']}" if x["out"] else ""))
        # the map says where they are to be
        lines += [f"  not done yet: {on_the_way(goes_on[i])}"] if i in goes_on and on_the_way(goes_on[i]) else []
    others = others_of(box, args)
    lines += [shown(f"{name} " + ("answers" if s["up"] else f"does not answer: {s['error']}")) for name, s in others.asked] + ([shown(others.note)] if others.note else [])
    show(args, with_others(args, answer, others), "\n".join(lines) + f"\nrelease {answer['release']}, {answer['cores']} data cores, "
         f"chunks of {answer['chunk_elements']} elements, MTU {answer['mtu']}")
    return 1 if others.dead else 0


def cluster_state(prefix):
    """What pbox-agent wrote last, and how old that is in seconds."""
    places = [d for d in os.environ.get("RUNTIME_DIRECTORY", "").split(":") if d] + ["/run/pbox-agent"]
    places += [] if os.getuid() == 0 else [os.environ.get("XDG_RUNTIME_DIR") or "/tmp"]
    for place in places:
        try:
            with open(os.path.join(place, f"agent.{prefix}.json"), encoding="utf-8") as f:
                state = json.load(f)
            return state, time.clock_gettime(time.CLOCK_BOOTTIME) - state["written_ms"] / 1000
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise BoxError(f"{place}/agent.{prefix}.json cannot be read: {e}") from e
    raise BoxError(f"no pbox-agent of the box '{prefix}' has written its state (agent.{prefix}.json in {', '.join(places)}): does it run, "
                   "and is there a section [cluster NAME] in pbox.conf?")


def add_cluster(parsers):
    parsers.add_parser("cluster", help="the fleet as etcd has it: leases, who decides, the map: exit status 1 if something is wrong")


def milliseconds(x, digits):
    """Without an exponent where it is large."""
    return f"{x:.0f}" if x >= 100 else f"{x:.{digits}g}"


def cmd_cluster(_box, args):
    state, age = cluster_state(args.file_prefix)
    if not args.json:
        state = visible_all(state)
    there, finding, silent = state.get("map"), state.get("finding"), age > CLUSTER_OLD
    lines = [f"fleet {state['fleet']}: " + (f"map of epoch {there['epoch']}, revision {there['revision']}: {there['why']}" if there
                                            else "no map is known")]
    rows = [[i, x["address"], "unknown" if not state["etcd_answers"] else "held" if x["lease"] else "none", x.get("state", "-"), x.get("release", "-"),
             ", ".join(word for word, is_so in (("decides", x["decides"]), ("this one", x["this"])) if is_so)]
            for i, x in enumerate(state["boxes"])]
    lines += [table(["box", "address", "lease", "state", "release", ""], rows)] if rows else []
    lines += [f"job '{name}': weights {', '.join(map(str, weights))}" for name, weights in state["jobs"].items()]
    for name, load in state.get("load", {}).items():
        lines += [f"job '{name}': {load['rule']}" + "".join(f"; {load[k]}" for k in ("last", "refused") if load[k])]
        rows = [[i, f"{x['share']:.1f}", *([milliseconds(x["ms"], 3), milliseconds(x["ci_ms"], 2), milliseconds(x["exposed_ms"], 3), "slow" if x["slow"] else ""]
                                           if "ms" in x else ["-", "-", "-", ""])] for i, x in enumerate(load["boxes"])]
        lines += [table(["box", "% of bytes", "ms a round", "+-", "waited ms", ""], rows)] if rows else []
    lines += [f"etcd: {state['etcd']} answers" if state["etcd_answers"] else
              f"etcd: no answer{' for ' + str(state['silent_ms'] // 1000) + ' s' if 'silent_ms' in state else ''}"]
    lines[-1] += f"; the lease of this box ends in {state['lease_ms'] / 1000:.0f} s, unless it is renewed" if state["lease_ms"] else "; this box has no lease"
    lines += [f"! pbox-agent has written nothing for {age:.0f} s: systemctl status pbox-agent"] if silent else []
    lines += findings_of({"finding_0": finding}) if finding else []
    show(args, state, "\n".join(lines))
    return 1 if silent or finding and finding["harmful"] else 0


def box_named(box, text):
    """BOX of a command line, exactly: its place in the list, or its address with or without the port. The number, and both."""
    boxes = box.ask("/pbox/boxes")
    there = {i: boxes[f"box_{i}"] for i in range(boxes["boxes"]) if f"box_{i}" in boxes}
    found = [i for i, address in there.items() if text in (str(i), address, address.rpartition(":")[0])]
    if not there:
        raise BoxError("this box is alone: its configuration has no list of boxes")
    if len(found) != 1:
        raise BoxError(f"'{visible(text)}' is none of the boxes, which are " + ", ".join(f"{i} ({address})" for i, address in there.items())
                       + ": write the number or the address")
    return found[0], f"box {found[0]} ({there[found[0]]})"


def add_moves(parsers):
    p = parsers.add_parser("moves", help="chunks of a job at several boxes go to another one; at the first box")
    p.add_argument("job", metavar="JOB", type=job_name, help="its name, else its number; name:3 and #3 are one for sure")
    p.add_argument("table", metavar="TABLE", type=int)
    p.add_argument("chunks", metavar="CHUNKS", help="one, as 5, or a range, as 5-12")
    p.add_argument("box", metavar="BOX", help="its place in the list of boxes, from 0, or its address")


def cmd_moves(box, args):
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", args.chunks)
    if found is None:
        raise BoxError(f"'{visible(args.chunks)}' is no range of chunks: name one, as 5, or a range, as 5-12")
    first, last = found[1], found[2] or found[1]
    if int(last) < int(first):
        raise BoxError(f"'{args.chunks}' ends before it begins: {last}-{first}")
    number, name = box_named(box, args.box)
    answer = box.ask("/pbox/moves", box.job(args.job), args.table, first, last, number)
    if refused(args, answer):
        return 1
    show(args, answer, f"map {answer['map']}: {answer['chunks']} chunks go to {name}")
    return 0


def add_scale(parsers):
    p = parsers.add_parser("scale", help="the boxes that a job's chunks are at from now on; at the first box")
    p.add_argument("job", metavar="JOB", type=job_name, help="its name, else its number; name:3 and #3 are one for sure")
    p.add_argument("boxes", metavar="BOXES", help="of the list of boxes, from 0, or addresses, with commas: 0,2")
    p.add_argument("-w", "--wait", type=float, metavar="SECONDS", help="wait so long until all workers go by the map, and this box has what is to come here; exit status 1: they do not yet")


def moves_done(box, args, name, boxes):
    """With --wait: until what the first box sees of the moves is done. What has left a box, that one knows."""
    if args.wait is None:
        return 0
    number = name.removeprefix("#")

    def look():
        jobs = entries(box.all_pages("/pbox/moving"), "job")
        return [on_the_way(x) for i, x in jobs if (str(i) == number if name.startswith("#") else x["name"] in (name, name.removeprefix("name:"))) and on_the_way(x)]
    left = until_done(args, args.wait, look)
    if left:
        print(f"pbox-ctl: not done within {args.wait:g} s: {'; '.join(left)}: pbox-ctl why JOB names who is waited for", file=sys.stderr)
        return 1
    if not args.json:
        print(f"all workers go by the map. Before {boxes} is stopped, ask there: pbox-ctl safe --wait SECONDS")
    return 0


def cmd_scale(box, args):
    if not all(args.boxes.split(",")):
        raise BoxError(f"'{visible(args.boxes)}' is no list of boxes: name them with commas, as 0,2")
    names = [box_named(box, x)[0] for x in args.boxes.split(",")]
    if len(names) != len(set(names)):
        raise BoxError(f"{visible(args.boxes)} names a box twice: each that is to have chunks once, as 0,2 (weights are given with weigh)")
    answer = box.ask("/pbox/scale", box.job(args.job), "+".join(map(str, names)))
    if refused(args, answer):
        return 1
    show(args, answer, f"map {answer['map']}: {answer['moves']} moves")
    return moves_done(box, args, args.job, "a box that has none of its chunks any more")


def add_failover(parsers):
    p = parsers.add_parser("failover", help="a box is dead: a job goes on without it, and the others take its chunks; at the box that decides, or, if that is the dead one, at the next one of the list, which decides then")
    p.add_argument("job", metavar="JOB", type=job_name, help="its name, else its number; name:3 and #3 are one for sure")
    p.add_argument("box", metavar="BOX", help="its address, or its place in the list of boxes, from 0")
    p.add_argument("--force", action="store_true", help="also if it lives: what an optimiser has gathered there is lost")


def cmd_failover(box, args):
    number, name = box_named(box, args.box)
    answer = box.ask("/pbox/failover", box.job(args.job), number, "force" if args.force else None)
    if refused(args, answer):
        return 1
    lines = [f"map {answer['map']}: {name} is out, {answer['chunks']} chunks go to the others"]
    lines += [f"! tables: {answer['stateless']}: the optimiser's state of {'these chunks' if answer['chunks'] else 'chunks that had not left it yet'} begins at 0, and parameters are as precise as results"] if answer["stateless"] else []
    show(args, answer, "\n".join(lines))
    return 0


def add_weigh(parsers):
    p = parsers.add_parser("weigh", help="a job's tables are shared out over its boxes by weights; at the first box")
    p.add_argument("job", metavar="JOB", type=job_name, help="its name, else its number; name:3 and #3 are one for sure")
    p.add_argument("weights", metavar="W,W,...", help="one for each box, as 1,1,0: the third one has nothing then")


def cmd_weigh(box, args):
    boxes = box.ask("/pbox/boxes")
    n = args.weights.count(",") + 1
    if boxes.get("boxes", 1) > 1 and n != boxes["boxes"]:
        raise BoxError(f"'{visible(args.weights)}' is {counted(n, 'weight')}, and there are {boxes['boxes']} boxes: write one for each, with commas, 0 for none of the bytes: "
                       + ", ".join(f"{i} ({boxes[f'box_{i}']})" for i in range(boxes["boxes"])))
    answer = box.ask("/pbox/weigh", box.job(args.job), args.weights)
    if refused(args, answer):
        return 1
    show(args, answer, f"map {answer['map']}: {answer['chunks']} chunks go to other boxes" if answer["chunks"] else "all chunks are where they should be")
    return 0


def add_drain(parsers):
    p = parsers.add_parser("drain", help="take no new jobs, or again (off); how many are left. JOB BOX: the job's chunks leave that box; at the first box")
    p.add_argument("what", nargs="*", metavar="on|off|stop|JOB BOX",
                   help="stop: the box stops when its last job has ended; or a job, and a box, by its place in the list, from 0, or its address, which is to have none of its chunks")
    p.add_argument("-w", "--wait", type=float, metavar="SECONDS", help="wait so long for the last job to end; with JOB BOX as scale does")


def drain_box(box, args):
    """All boxes that have chunks of the job keep them, but that one."""
    name, away = args.what
    jobs = entries(box.all_pages("/pbox/jobs"), "job")
    found = [x for x in jobs if x[1]["name"] in (name, name.removeprefix("name:"))] or [x for x in jobs if str(x[0]) == name.removeprefix("#")]
    if not found:
        raise BoxError(f"there is no job '{visible(name)}': 'pbox-ctl jobs' names the jobs")
    number, job = f"#{found[0][0]}", found[0][1]
    if "homes" not in job:
        raise BoxError(f"job '{visible(name)}' is at this box alone: its chunks cannot leave it")
    homes = [int(x) for x in job["homes"].split()]
    away, where = box_named(box, away)
    out = [int(x) for x in job["out"].split()]
    rest = [i for i in range(len(homes)) if i != away and i not in out]
    rest = [i for i in rest if homes[i] > 0] or rest
    if not rest:
        raise BoxError("no other box is left that could take its chunks")
    if homes[away] == 0:
        show(args, {"map": job["map"], "moves": 0}, f"{where} has no chunks of job '{visible(args.what[0])}' by map {job['map']}")
        return moves_done(box, args, number, where)
    answer = box.ask("/pbox/scale", number, "+".join(map(str, rest)))
    if refused(args, answer):
        return 1
    show(args, answer, f"map {answer['map']}: {answer['moves']} moves; the job is at box {', '.join(map(str, rest))} then")
    return moves_done(box, args, number, where)


def cmd_drain(box, args):
    if len(args.what) == 2:
        return drain_box(box, args)
    if args.what not in ([], ["on"], ["off"], ["stop"]):
        raise BoxError(f"drain '{visible(' '.join(args.what))}': say on, off or stop, or a job and a box")
    answer = box.ask("/pbox/drain", *args.what)
    if refused(args, answer):
        return 1
    limit = time.monotonic() + (args.wait or 0)
    while args.wait and answer["jobs"] > 0 and time.monotonic() < limit:
        time.sleep(0.1)
        answer = box.ask("/pbox/drain")
    show(args, answer, f"draining: {answer['draining']}; jobs: {answer['jobs']}")
    return 1 if args.wait and answer["jobs"] > 0 else 0
