# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What the other boxes of a fleet say, for pbox-ctl: from the page of the exporter beside this box (pbox-exporter --page --boxes).

A box knows of its own chunks alone, and boxes do not talk to each other.
"""

import json
import os
import urllib.parse

# what speaks HTTP is imported where there is somebody to ask: most boxes are alone, and pbox-ctl is to be quick

PAGE = "http://127.0.0.1:9517"
PATIENCE = 5.0  # the exporter asks the others within 3 s
MOST = 64 << 20


class Others:
    """asked: [(name, state)] of the other boxes; note: whom it could not ask, in a line; "": all were asked."""

    def __init__(self, boxes):
        """boxes: what /pbox/boxes answers. A box that is alone has no others."""
        self.asked, self.note = [], ""
        if boxes.get("boxes", 1) < 2:
            return
        import http.client  # pylint: disable=import-outside-toplevel
        from box_page import PageError, checked  # pylint: disable=import-outside-toplevel
        where = os.environ.get("PBOX_PAGE", PAGE)
        try:
            documents = _fleet(where)
            self.asked = [(str(x["name"]), checked(x["state"])) for x in documents[1:]]
        except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException, PageError) as e:
            self.note = (f"the other {boxes['boxes'] - 1} boxes were not asked: no page of all boxes at {where} ({e}): start pbox-exporter --page --boxes ... "
                         "here, or name one with PBOX_PAGE (pbox-exporter(8))")
            return
        known = {s["box"].get("number") for _, s in self.asked if s["up"]} | {boxes["box"]}
        missing = [i for i in range(boxes["boxes"]) if i not in known]
        lacking = len(missing) - sum(not s["up"] for _, s in self.asked)
        if lacking > 0:
            self.note = (f"{lacking} of box {', '.join(map(str, missing))} {'was' if lacking == 1 else 'were'} not asked: --boxes of the exporter at {where} does not "
                         "name them all")

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


def _fleet(where):
    """The boxes of /fleet."""
    import http.client  # pylint: disable=import-outside-toplevel
    import ssl  # pylint: disable=import-outside-toplevel
    from box_page import Access, PageError  # pylint: disable=import-outside-toplevel
    url = urllib.parse.urlsplit(where)
    access = Access("127.0.0.1", None, None, os.environ.get("PBOX_PAGE_PASSWORD"), os.environ.get("PBOX_PAGE_CA"))
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
