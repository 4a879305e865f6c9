# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The live page of pbox-exporter: / (one file, which loads nothing from elsewhere), /events (server-sent events), /state, /fleet, /healthz.

Boxes do not talk to each other, and agents listen nowhere: each exporter serves what its own box says, and asks the exporters of the others.
"""

import base64
import hashlib
import hmac
import http.client
import ipaddress
import json
import os
import re
import ssl
import stat
import threading
import time
import urllib.parse

from box_state import INTERVAL, TIMEOUT, VERSION, Box, Watch, down

HERE = os.path.dirname(os.path.realpath(__file__))
OTHER_PATIENCE = 2.0  # seconds
OTHER_MOST = 8 << 20  # bytes of another one's state
STREAMS = 64  # viewers at a time
QUIET = 15.0  # seconds after which a stream shows that it lives
USER = "pbox"


class PageError(Exception):
    """The page cannot be served so."""


def is_loopback(host):
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_password(path):
    """The first line of a file that nobody but its owner and group can read."""
    try:
        with open(path, encoding="utf-8") as f:
            mode, lines = os.fstat(f.fileno()).st_mode, f.read(4096).splitlines()
    except (OSError, ValueError) as e:
        raise PageError(f"--password {path}: {e}") from e
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise PageError(f"--password {path}: others may read it: chmod o= {path}")
    if not lines or len(lines[0]) < 12:
        raise PageError(f"--password {path}: its first line is to be a password of 12 characters or more: openssl rand -base64 18 > {path}")
    return lines[0]


class Access:
    """Who may look: anyone who reaches it at loopback, else who has the password, over TLS."""

    def __init__(self, host, certificate, key, password, ca):
        if not is_loopback(host) and not (certificate and password):
            raise PageError(f"the page at {host} would be everybody's: give --tls-certificate FILE and --password FILE, or listen at 127.0.0.1 "
                            "(ssh -L 9517:127.0.0.1:9517 brings it to a desk)")
        self.password = read_password(password) if password else None
        self.header = "Basic " + base64.b64encode(f"{USER}:{self.password}".encode()).decode() if password else None
        self.server = self.client = None
        try:
            if certificate:
                self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                self.server.minimum_version = ssl.TLSVersion.TLSv1_2
                self.server.load_cert_chain(certificate, key or certificate)
            self.client = ssl.create_default_context(cafile=ca or None)
        except (OSError, ssl.SSLError) as e:
            raise PageError(f"--tls-certificate {certificate}, --tls-key {key or certificate}, --tls-ca {ca}: {e}") from e

    def allows(self, header):
        if self.header is None:
            return True
        return hmac.compare_digest((header or "").encode(errors="replace"), self.header.encode())


def other(text):
    """(name, URL) of another box's exporter: [NAME=]ADDRESS:PORT or [NAME=]https://ADDRESS:PORT."""
    name, equals, where = text.rpartition("=")
    if "://" not in where:
        where = "http://" + where
    url = urllib.parse.urlsplit(where)
    try:
        good = url.scheme in ("http", "https") and url.hostname and url.port and url.path in ("", "/") and not url.query
    except ValueError:
        good = False
    if not good:
        raise PageError(f"--boxes: '{text}' is not [NAME=]ADDRESS:PORT or [NAME=]https://ADDRESS:PORT of another box's exporter")
    return (name if equals else url.netloc), url


class Other(threading.Thread):
    """Asks another exporter for what its box says, once a second while anybody looks."""

    def __init__(self, name, url, access, wanted):
        super().__init__(name=f"ask {name}", daemon=True)
        self.label, self.url, self.access, self.wanted = name, url, access, wanted
        self.state, self.connection = down("it has not been asked yet"), None

    def run(self):
        while True:
            began = time.monotonic()
            self.wanted.wait()
            self.look()
            time.sleep(max(0.05, INTERVAL - (time.monotonic() - began)))

    def look(self):
        """Once: `state` is what it says now."""
        try:
            self.state = self._ask()
        except Exception as e:  # pylint: disable=broad-except  # whatever it answers, the others are shown
            self._forget()
            self.state = down(f"its exporter at {self.url.netloc}: {e or type(e).__name__}")

    def _forget(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def _ask(self):
        if self.connection is None:
            options = {"timeout": OTHER_PATIENCE}
            self.connection = http.client.HTTPSConnection(self.url.hostname, self.url.port, context=self.access.client, **options) \
                if self.url.scheme == "https" else http.client.HTTPConnection(self.url.hostname, self.url.port, **options)
        # a password goes nowhere in the clear but to this host itself
        send = self.access.header and (self.url.scheme == "https" or is_loopback(self.url.hostname))
        self.connection.request("GET", "/state", headers={"Authorization": self.access.header} if send else {})
        answer = self.connection.getresponse()
        body = answer.read(OTHER_MOST + 1)
        if answer.status != 200:
            raise PageError({401: "it wants another password (--password)", 404: "it has no page: start it with --page"}.get(
                answer.status, f"status {answer.status}"))
        if len(body) > OTHER_MOST:
            raise PageError("its answer is too long")
        state = json.loads(body)
        return checked(state)


def checked(state):
    """What others say goes to the page, which relies on this shape."""
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise PageError(f"its /state is not of version {VERSION}: is it an exporter of another release?")
    lists = {"cores": dict, "ports": dict, "jobs": dict, "findings": dict}
    if not isinstance(state.get("up"), bool) or not isinstance(state.get("box"), dict) or not isinstance(state.get("time"), (int, float)) or any(
            not isinstance(state.get(k), list) or not all(isinstance(x, t) for x in state[k]) for k, t in lists.items()):
        raise PageError("its /state is not what doc/state.schema.json says")
    return state


class Fleet:
    """This box, and those of the others that --boxes names."""

    def __init__(self, box, access, others):
        self.watch, self.access = Watch(box), access
        self.wanted, self.viewers, self.lock = threading.Event(), 0, threading.Lock()
        self.others = [Other(name, url, access, self.wanted) for name, url in others]
        self.page = load_page()
        for thread in (self.watch, *self.others):
            thread.start()

    def look(self, step):
        """Counts viewers: others are asked while there is one."""
        with self.lock:
            if step > 0 and self.viewers >= STREAMS:
                return False
            self.viewers += step
            (self.wanted.set if self.viewers else self.wanted.clear)()
        return True

    def document(self, state):
        number = state["box"].get("number")
        name = f"box {number}" if state["box"].get("boxes", 1) > 1 else "this box"
        return {"version": VERSION, "time": time.time(), "boxes": [{"name": name, "state": state}] + [
            {"name": o.label, "state": o.state} for o in self.others]}


def load_page():
    """(bytes, what the browser may do with it): its own script and style run, and nothing else does."""
    with open(os.path.join(HERE, "page.html"), encoding="utf-8") as f:
        text = f.read()

    def digest(tag):
        inner = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S).group(1)
        return "'sha256-" + base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode() + "'"
    policy = (f"default-src 'none'; script-src {digest('script')}; style-src {digest('style')}; connect-src 'self'; base-uri 'none'; "
              "form-action 'none'; frame-ancestors 'none'")
    return text.encode(), policy


class PageHandler:
    """Mixed into the exporter's handler: paths of the page. `self.server.fleet` is a Fleet, or None."""

    def may_look(self):
        """False: 401 has been sent."""
        if self.server.fleet.access.allows(self.headers.get("Authorization")):
            return True
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="PBox", charset="UTF-8"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def serve_page(self, path):
        """False: no such path."""
        serve = {"/": self.serve_html, "/events": self.serve_events, "/state": self.serve_state, "/fleet": self.serve_fleet,
                 "/healthz": self.serve_healthz}.get(path)
        if serve is None:
            return False
        if path == "/healthz" or self.may_look():
            serve()
        return True

    def document(self, value, status=200):
        body = json.dumps(value, allow_nan=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.common_headers()
        self.send_body(body)

    def send_body(self, body):
        """HEAD is answered as GET is, without it."""
        if self.command != "HEAD":
            self.wfile.write(body)

    def common_headers(self):
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def serve_html(self):
        body, policy = self.server.fleet.page
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Referrer-Policy", "no-referrer")
        self.common_headers()
        self.send_body(body)

    def serve_state(self):
        self.document(self.server.fleet.watch.after(0, INTERVAL)[1])

    def serve_fleet(self):
        """Of all boxes, asked now."""
        fleet = self.server.fleet
        if not fleet.look(1):
            return self.send_error(503, "too many viewers")
        try:
            began = time.time()
            end = time.monotonic() + OTHER_PATIENCE + INTERVAL
            while any(o.state["time"] < began - INTERVAL for o in fleet.others) and time.monotonic() < end:
                time.sleep(0.05)
            self.document(fleet.document(fleet.watch.after(0, INTERVAL)[1]))
        finally:
            fleet.look(-1)
        return None

    def serve_healthz(self):
        """For probes: 200 while the box answers, else 503; nothing that a stranger may not know."""
        up = self.server.fleet.watch.after(0, INTERVAL)[1]["up"] if self.server.fleet is not None else self.server.answers()
        self.document({"up": up}, 200 if up else 503)

    def serve_events(self):
        fleet = self.server.fleet
        if self.command == "HEAD":  # nobody waits for events there
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            return self.common_headers()
        if not fleet.look(1):
            return self.send_error(503, "too many viewers")
        self.server.endless(self.connection)
        try:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.common_headers()
            self.event("past", fleet.watch.past())
            number = 0
            while not self.server.stopping.is_set():
                number, state = fleet.watch.after(number, QUIET)
                self.event("fleet", fleet.document(state))
        finally:
            fleet.look(-1)
        return None

    def event(self, name, value):
        self.wfile.write(f"event: {name}\ndata: {json.dumps(value, allow_nan=False)}\n\n".encode())
        self.wfile.flush()


def open_fleet(paths, host, args):
    """paths: where the box may be; args: of the command line."""
    access = Access(host, args.tls_certificate, args.tls_key, args.password, args.tls_ca)
    others = [other(text) for text in (args.boxes or "").split(",") if text]
    box = Box(timeout=TIMEOUT)
    box.paths = paths
    return Fleet(box, access, others)
