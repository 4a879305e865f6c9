# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What the other boxes of a fleet say, for pbox-ctl and pbox-top: from the page of the exporter beside this box (pbox-exporter --page
--boxes), or from each of the others' exporters.

A box knows of its own chunks alone, and boxes do not talk to each other.
"""

import argparse
import json
import os
import threading
import time
import urllib.parse

# what speaks HTTP is imported where there is somebody to ask: most boxes are alone, and pbox-ctl is to be quick

PAGE = "http://127.0.0.1:9517"
PATIENCE = 5.0  # the exporter asks the others within 3 s
MOST = 64 << 20


class Others:
    """asked: [(name, state)] of the other boxes; note: whom it could not ask, in a line; "": all were asked."""

    def __init__(self, boxes, exporters=()):
        """boxes: what /pbox/boxes answers; exporters: addresses() of a command line. A box that is alone has no others, but those."""
        self.asked, self.note = [], ""
        if boxes.get("boxes", 1) < 2 and not exporters:
            return
        import http.client  # pylint: disable=import-outside-toplevel
        from box_page import PageError, checked  # pylint: disable=import-outside-toplevel
        where = os.environ.get("PBOX_PAGE", PAGE)
        try:
            found = _each(exporters) if exporters else [(str(x["name"]), checked(x["state"])) for x in _fleet(where)[1:]]
            self.asked = [(name, of_fleet(boxes, s)) for name, s in found if not is_this(boxes, s)]
        except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException, PageError) as e:
            self.note = f"the other {boxes['boxes'] - 1} boxes" if boxes.get("boxes", 1) > 1 else "the boxes of --boxes"
            self.note += f" were not asked: {e}" if exporters else (
                f" were not asked: no page of all boxes at {where} ({e}): start pbox-exporter --page --boxes ... here, or name one with PBOX_PAGE "
                "(pbox-exporter(8)), or the others' with --boxes")
            return
        if boxes.get("boxes", 1) < 2:
            return
        known = {s["box"].get("number") for _, s in self.asked if s["up"]} | {boxes["box"]}
        missing = [i for i in range(boxes["boxes"]) if i not in known]
        lacking = len(missing) - sum(not s["up"] for _, s in self.asked)
        if lacking > 0:
            self.note = (f"{lacking} of box {', '.join(map(str, missing))} {'was' if lacking == 1 else 'were'} not asked: --boxes "
                         f"{'' if exporters else f'of the exporter at {where} '}does not name them all")

    @property
    def dead(self):
        """[(name, why)] of those that do not answer."""
        return [(name, s["error"]) for name, s in self.asked if not s["up"]]

    def findings(self):
        """(harmful, text, next step)."""
        found = [(True, f"{name} does not answer: {why}", "start it again, or let its jobs go on without it: pbox-ctl failover JOB BOX at box 0")
                 for name, why in self.dead]
        for name, s in self.asked:
            found += [(bool(f.get("harmful")), f"{name}: {f.get('text', '')}", str(f.get("next", ""))) for f in s["findings"]]
        return sorted(found, key=lambda f: not f[0])

    def job(self, name):
        """[(box, job)] of those of this name."""
        return [(box, j) for box, s in self.asked for j in s["jobs"] if j.get("name") == name]

    def waits(self, name):
        """What a job waits for at the others, in lines."""
        return [f"{box} does not answer: {why}" for box, why in self.dead] + [
            f"at {box}: {j['waits']['text']}" for box, j in self.job(name) if isinstance(j.get("waits"), dict)]


def addresses(text):
    """--boxes of a command line: [(name, URL)] of exporters."""
    from box_page import PageError, other  # pylint: disable=import-outside-toplevel
    try:
        found = [other(x) for x in text.split(",") if x]
    except PageError as e:
        raise argparse.ArgumentTypeError(str(e).removeprefix("--boxes: ")) from e
    if not found:
        raise argparse.ArgumentTypeError("it names no box: [NAME=]ADDRESS:PORT of each one's pbox-exporter --page, with commas")
    return found


def add_boxes_option(p):
    p.add_argument("--boxes", type=addresses, default=(), metavar="[NAME=]ADDRESS:PORT,...",
                   help="ask these exporters (pbox-exporter --page) for the other boxes, and not the one beside this box; the list may name this box too")


def is_this(boxes, state):
    """It is the box that is asked here anyway."""
    there = state["box"]
    return boxes.get("boxes", 1) > 1 and state["up"] and there.get("number") == boxes["box"] and there.get("address") == boxes.get(f"box_{boxes['box']}")


def of_fleet(boxes, state):
    """The state, or, where a box of another list is at that address, a state that says so: its jobs are not these."""
    from box_state import down  # pylint: disable=import-outside-toplevel
    number, address = state["box"].get("number"), state["box"].get("address")
    if boxes.get("boxes", 1) < 2 or not state["up"] or address == boxes.get(f"box_{number}", ""):
        return state
    what = f"box {number} of its list is {address}, and here {boxes.get(f'box_{number}', 'there is none')}" if address else "it is alone"
    return down(f"what its exporter shows is no box of this fleet: {what}")


def _access():
    from box_page import Access  # pylint: disable=import-outside-toplevel
    return Access("127.0.0.1", None, None, os.environ.get("PBOX_PAGE_PASSWORD"), os.environ.get("PBOX_PAGE_CA"))


def _each(exporters):
    """[(name, state)] of each of them, all asked at the same time."""
    from box_page import Other  # pylint: disable=import-outside-toplevel
    from box_state import down  # pylint: disable=import-outside-toplevel
    access = _access()
    others = [Other(name, url, access, None) for name, url in exporters]
    asking = [threading.Thread(target=o.look, daemon=True) for o in others]
    for thread in asking:
        thread.start()
    end = time.monotonic() + PATIENCE
    for thread in asking:
        thread.join(max(0.0, end - time.monotonic()))
    return [(o.label, down(f"its exporter at {o.url.netloc} gave no whole answer within {PATIENCE:.0f} s") if t.is_alive() else o.state)
            for o, t in zip(others, asking)]


def _fleet(where):
    """The boxes of /fleet."""
    import http.client  # pylint: disable=import-outside-toplevel
    import ssl  # pylint: disable=import-outside-toplevel
    from box_page import PageError  # pylint: disable=import-outside-toplevel
    url = urllib.parse.urlsplit(where)
    access = _access()
    kind, options = (http.client.HTTPSConnection, {"context": access.client}) if url.scheme == "https" else (http.client.HTTPConnection, {})
    connection = kind(url.hostname, url.port or 9517, timeout=PATIENCE, **options)
    try:
        connection.request("GET", "/fleet", headers={"Authorization": access.header} if access.header else {})
        answer = connection.getresponse()
        body = answer.read(MOST)
    except ssl.SSLError as e:
        raise PageError(f"{e}: PBOX_PAGE_CA names whose certificates are trusted") from e
    finally:
        connection.close()
    if answer.status != 200:
        raise PageError({401: "it wants a password: PBOX_PAGE_PASSWORD names its file", 404: "that exporter runs without --page"}.get(
            answer.status, f"status {answer.status}"))
    return json.loads(body)["boxes"]
