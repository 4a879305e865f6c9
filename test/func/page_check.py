#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Looks at the page of pbox-exporter with a real browser (WebDriver), and at its documents. page_check.py WHAT ARGUMENT...; used by test/func/page."""

import base64
import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PORT = 9515
SECONDS = 60.0


def get(url, password=None, ca=None):
    """(status, headers, body)."""
    request = urllib.request.Request(url)
    if password is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"pbox:{password}".encode()).decode())
    context = ssl.create_default_context(cafile=ca) if ca else None
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


class Browser:
    """Chromium by its driver."""

    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", f"--port={PORT}", "--log-level=SEVERE"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        options = {"binary": "/usr/bin/chromium", "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]}
        end = time.monotonic() + SECONDS
        while True:
            try:
                made = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}})
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        self.session = "/session/" + made["sessionId"]

    def call(self, method, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", method=method, data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as e:
            raise AssertionError(f"{path}: {json.loads(e.read())['value']['message']}") from e

    def open(self, url):
        self.call("POST", self.session + "/url", {"url": url})

    def js(self, text):
        return self.call("POST", self.session + "/execute/sync", {"script": text, "args": []})

    def cdp(self, command, **parameters):
        return self.call("POST", self.session + "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def until(self, condition, what, seconds=SECONDS):
        """What a script returns when it is true; how long that took."""
        began = time.monotonic()
        while True:
            got = self.js("return " + condition)
            if got:
                return got, time.monotonic() - began
            if time.monotonic() - began > seconds:
                raise AssertionError(f"{what}: not within {seconds} s. The page says: {self.js('return document.body.innerText')[:2000]}")
            time.sleep(0.1)

    def end(self):
        try:
            self.call("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait(20)


TEXT = "document.querySelector('main').innerText"


def check_live(browser, url, job):
    """It renders, its figures move, it fits, and it loads nothing from elsewhere."""
    browser.open(url)
    browser.until(f"{TEXT}.includes({json.dumps(job)})", "the job")
    number = r"+(document.querySelector('#joblist dl').innerText.match(/round\s+(\d+)/) || [0, 0])[1]"
    first, _ = browser.until(number, "a round")
    browser.until(f"{number} > {first}", "a later round")
    browser.until("document.querySelector('path.curve').getAttribute('d').split('L').length > 3", "a line of the last minutes")
    loaded = browser.js("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(x.startswith(url) for x in loaded), loaded
    assert browser.js("return document.querySelector('#findings').getAttribute('aria-live')") == "polite"
    nameless = browser.js("return [...document.querySelectorAll('svg, .wide, .band')].filter(e => !(e.getAttribute('aria-label') || e.querySelector('title'))).length")
    assert nameless == 0, nameless
    backs = {}
    for scheme in ("light", "dark"):
        browser.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        backs[scheme] = browser.js("return getComputedStyle(document.body).backgroundColor")
    assert backs["light"] != backs["dark"], backs
    for width in (1280, 400):
        browser.cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        inner = browser.js("return document.documentElement.scrollWidth")
        assert inner <= width, f"{inner} pixels wide in a window of {width}"
    browser.cdp("Emulation.clearDeviceMetricsOverride")
    for _ in range(3):  # by keyboard: the link over the head, then what can be scrolled
        browser.cdp("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        browser.cdp("Input.dispatchKeyEvent", type="keyUp", key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert browser.js("return document.activeElement !== document.body"), "nothing has the focus"


def check_hostile(browser, url, job):
    """A job's name that is markup stays text, and does nothing."""
    browser.open(url)
    browser.until(f"{TEXT}.includes({json.dumps(job)})", "the name as it is")
    assert browser.js("return document.querySelectorAll('img, #evil').length") == 0
    assert browser.js("return window.evil === undefined")


def check_finding(browser, url, text, there):
    """A finding with this text is there, or goes."""
    browser.open(url)
    has = f"document.querySelector('#findings').innerText.includes({json.dumps(text)})"
    browser.until("document.querySelector('#findings li')", "any finding, or that there is none")
    _, took = browser.until(has if there == "1" else f"!({has})", text)
    print(f"after {took:.1f} s")


def check_down(browser, url, name):
    """A box that does not answer is a red tile, and the page is there."""
    browser.open(url)
    browser.until(f"[...document.querySelectorAll('.card.down')].some(e => e.innerText.includes({json.dumps(name)}))", f"a red tile of {name}")
    assert browser.js("return document.querySelectorAll('#boxes article').length") >= 1


# ---- without a browser ---------------------------------------------------------------------------


def violations(value, schema, where="state"):
    """What a document has that the schema does not allow, as far as ours go."""
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float), "null": type(None)}
    types = schema["type"] if isinstance(schema.get("type"), list) else [schema["type"]]
    if not any(isinstance(value, kinds[t]) and not (t in ("integer", "number") and isinstance(value, bool)) for t in types):
        return [f"{where} is {value!r}, not {types}"]
    found = [f"{where} is not {schema['const']}"] if "const" in schema and value != schema["const"] else []
    if isinstance(value, dict):
        found += [f"{where} lacks {k}" for k in schema.get("required", ()) if k not in value]
        found += [f"{where}.{k} is in no schema" for k in value if k not in schema["properties"]]
        for k, x in value.items():
            found += violations(x, schema["properties"][k], f"{where}.{k}") if k in schema["properties"] else []
    if isinstance(value, list):
        for i, x in enumerate(value):
            found += violations(x, schema["items"], f"{where}[{i}]")
    return found


def check_state(url, job):
    with open(os.path.join(TOP, "doc/state.schema.json"), encoding="utf-8") as f:
        schema = json.load(f)
    status, headers, body = get(url + "state")
    state = json.loads(body)
    assert status == 200 and headers["Content-Type"] == "application/json", (status, headers)
    assert not violations(state, schema), violations(state, schema)
    assert violations({**state, "up": 1, "more": 0}, schema) == ["state.more is in no schema", "state.up is 1, not ['boolean']"]
    mine = next(j for j in state["jobs"] if j["name"] == job)
    assert mine["joined"] == 2 and mine["rounds_per_s"] > 0 and [w["worker"] for w in mine["workers"]] == [0, 1], mine
    fleet = json.loads(get(url + "fleet")[2])
    assert [not violations(b["state"], schema) for b in fleet["boxes"]] == [True] * len(fleet["boxes"]), fleet
    assert get(url + "healthz")[0] == 200 and get(url + "other")[0] == 404
    for path in ("", "state", "fleet", "events", "metrics", "healthz", "other"):  # an endless answer would not come back
        with socket.create_connection(urllib.parse.urlsplit(url).netloc.split(":"), timeout=SECONDS) as sock:
            sock.sendall(f"HEAD /{path} HTTP/1.0\r\n\r\n".encode())
            head, _, body = sock.makefile("rb").read().partition(b"\r\n\r\n")
        assert head.split()[1] == (b"404" if path == "other" else b"200") and not body, (path, head, body)
    status, headers, body = get(url)
    assert len(body) < 60000 and b"://" not in body.replace(b"http://www.w3.org/2000/svg", b""), "it names other places"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'sha256-"), headers


def check_down_state(url):
    with open(os.path.join(TOP, "doc/state.schema.json"), encoding="utf-8") as f:
        schema = json.load(f)
    state = json.loads(get(url + "state")[2])
    assert not state["up"] and state["error"] and not violations(state, schema), state
    assert get(url + "healthz")[0] == 503


def check_access(url, password, ca):
    for path in ("", "state", "fleet", "events", "metrics", "other"):
        assert get(url + path, None, ca)[0] == 401, path
        assert get(url + path, password + "x", ca)[0] == 401, path
    assert get(url + "healthz", None, ca)[0] in (200, 503)
    assert get(url + "state", password, ca)[0] == 200
    assert b"pbox_up" in get(url + "metrics", password, ca)[2]
    try:
        get(url.replace("https", "http") + "state", password)
    except OSError:
        return
    raise AssertionError("it answers without TLS")


def check_other(url, password, ca, name, up):
    end = time.monotonic() + SECONDS
    while True:
        boxes = {b["name"]: b["state"] for b in json.loads(get(url + "fleet", password or None, ca or None)[2])["boxes"]}
        if name in boxes and boxes[name]["up"] == (up == "1"):
            print(boxes[name]["error"])
            return
        assert time.monotonic() < end, boxes


def main():
    what, *arguments = sys.argv[1:]
    if what in ("state", "down_state", "access", "other"):
        globals()["check_" + what](*arguments)
        return
    browser = Browser()
    try:
        globals()["check_" + what](browser, *arguments)
    finally:
        browser.end()


main()
