# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The telemetry of a running box: where its socket is, questions and answers, texts for people. Shared by pbox-ctl,
pbox-top and pbox-exporter, with what their command lines have in common."""

import argparse
import glob
import json
import os
import socket
import sys
import unicodedata

from pbox_version import add_version

BUFFER = 64 * 1024
SOCKET = "dpdk_telemetry.v2"
GREETING = 4.0  # seconds; DPDK sends it at once


class BoxError(Exception):
    """The box cannot be asked."""

    def hint(self):
        """What else helps who has typed a command."""
        return ""


class NoBox(BoxError):
    """No box answers at these paths of sockets."""

    def __init__(self, text, paths):
        super().__init__(text)
        self.paths = paths

    def hint(self):
        found = running_prefixes(self.paths)
        return (f". Is it running (systemctl status pbox)? -f names the file prefix of another one: {', '.join(found)} {'runs' if len(found) == 1 else 'run'} here" if found else
                ". Is it running? systemctl status pbox, its log. -f names its --file-prefix, RUNTIME_DIRECTORY its run-time directory")


class Unreadable(BoxError, ValueError):
    """It answers, but not in JSON."""


def runtime_directories():
    """Where boxes have their sockets: as given, the unit's, DPDK's own."""
    found = [d for d in os.environ.get("RUNTIME_DIRECTORY", "").split(":") if d] + ["/run/pbox"]
    # others may write to /tmp: root asks nobody there
    found += ["/var/run"] if os.getuid() == 0 else [os.environ.get("XDG_RUNTIME_DIR") or "/tmp", "/var/run"]
    return list(dict.fromkeys(found))


def socket_paths(prefix):
    return [os.path.join(d, "dpdk", prefix, SOCKET) for d in runtime_directories()]


def running_prefixes(but=()):
    """File prefixes of DPDK programs whose telemetry can be connected to here, but for those paths; a few."""
    found = []
    for path in sorted(p for d in runtime_directories() for p in glob.glob(os.path.join(glob.escape(d), "dpdk", "*", SOCKET))):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(0.2)
            try:
                if path not in but:
                    sock.connect(path)
                    found.append(visible(path.split(os.sep)[-2]))
            except OSError:
                pass  # it has gone, or is not this user's
    return found[:8]


def decode(text):
    """What a string of an answer says: they come in UTF-7 (doc/telemetry.md)."""
    try:
        return text.encode("ascii").decode("utf-7")
    except UnicodeError:  # of a box before that
        return text


def whole(answer):
    """An answer with its texts: decoded, and those in parts (NAME, NAME_more, ...) put together."""
    if isinstance(answer, list):
        return [whole(x) for x in answer]
    if not isinstance(answer, dict):
        return decode(answer) if isinstance(answer, str) else answer
    out = {}
    for key, x in answer.items():
        base = key
        while base.endswith("_more") and isinstance(answer.get(base[:-5]), str):
            base = base[:-5]
        if base == key:
            out[key] = whole(x)
        else:
            out[base] += whole(x)
    return out


def visible(text, but=""):
    """A text on one line of a terminal: nothing in it that steers one, but those characters."""
    return "".join(c if c.isprintable() or c in but else c.encode("unicode_escape").decode() for c in text)


def visible_all(answer):
    if isinstance(answer, dict):
        return {key: visible_all(x) for key, x in answer.items()}
    if isinstance(answer, list):
        return [visible_all(x) for x in answer]
    return visible(answer) if isinstance(answer, str) else answer


def json_text(answer):
    """An answer as JSON, its letters as they are. JSON itself leaves some characters that steer a terminal (U+0080 to U+009F, directions)."""
    text = json.dumps(answer, indent=2, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def width(text):
    """Columns of a terminal that a text takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def ljust(text, columns):
    return text + " " * max(0, columns - width(text))


def rjust(text, columns):
    return " " * max(0, columns - width(text)) + text


def why_not(e):
    """Of a socket that cannot be connected to, in words that say what to do."""
    if isinstance(e, FileNotFoundError):
        return "is not there"
    if isinstance(e, PermissionError):
        return "is not this user's: ask as root, or as the box's user"
    if isinstance(e, ConnectionRefusedError):
        return "is of a box that has gone"
    if isinstance(e, (TimeoutError, BlockingIOError)):  # the second: so many wait there already
        return "is open, and nobody answers there: the box's process is stopped or hangs (systemctl status pbox, its log)"
    return str(getattr(e, "strerror", None) or e)


class Connection:
    """One connection to the box of a file prefix (EAL's option), or to the socket at a path."""

    def __init__(self, prefix="rte", path=None, timeout=10.0):
        self.paths = [path] if path else socket_paths(prefix)
        self.path, self.sock, self.about, self.timeout = self.paths[0], None, None, timeout

    def close(self):
        if self.sock is not None:
            self.sock.close()
        self.sock = None

    def _greet(self, path):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(min(GREETING, self.timeout))
        try:
            sock.connect(path)
            greeting = sock.recv(BUFFER)
            if not greeting:
                raise BoxError(f"{path}: ten connections are open, and DPDK takes no more: ss -xp names their programs")
            self.about = json.loads(greeting)
            sock.settimeout(self.timeout)
        except BaseException:
            sock.close()
            raise
        self.path, self.sock = path, sock

    def connect(self):
        """To the first place where a box answers."""
        self.close()
        tried = []
        for path in self.paths:
            try:
                self._greet(path)
                return
            except (OSError, ValueError) as e:
                tried.append(f"{path} {why_not(e)}")
        raise NoBox(f"no box answers: {'; '.join(tried)}", self.paths)

    def exchange(self, text):
        """The answer to a line, as JSON with its texts decoded. A connection that brings none is closed: what came
        later would be taken for the answer to the next one."""
        if self.sock is None:
            raise BoxError(f"{self.path} is not connected")
        try:
            self.sock.send(text.encode(errors="surrogateescape"))
            answer = self.sock.recv(BUFFER)
            if not answer:
                raise ConnectionResetError("it has ended the connection")
        except OSError as e:
            self.close()
            raise BoxError(f"{self.path} gives no answer to {text}: {e}") from e
        try:
            return whole(json.loads(answer))
        except ValueError as e:
            raise Unreadable(f"the answer of {self.path} to {text} cannot be read: {e}") from e

    def ask(self, command, *parameters):
        """The answer to a command, as json.loads gives it; None: the box does not know it."""
        return self.exchange(",".join([command, *map(str, parameters)])).get(command)

    def pages(self, command, *parameters):
        """The pages of an answer, one after the other."""
        page = self.ask(command, *parameters)
        yield page
        while "next" in page:
            page = self.ask(command, *parameters, page["next"])
            yield page

    def all_pages(self, command, *parameters):
        """All pages of an answer in one."""
        return {key: x for page in self.pages(command, *parameters) for key, x in page.items() if key != "next"}


def entries(answer, kind):
    """(number, entry) of "KIND_0", "KIND_1", ... in order."""
    found = ((key.removeprefix(kind + "_"), x) for key, x in answer.items() if key.startswith(kind + "_") and isinstance(x, dict))
    return sorted(((int(number), x) for number, x in found if number.isdigit()), key=lambda entry: entry[0])


def workers_text(ranges):
    """"1,3-7" of an answer, for people: "worker 1", "workers 1 and 2", "workers 1, 3-7 and 9"."""
    pieces = []
    for piece in ranges.split(","):
        first, dash, last = piece.partition("-")
        pieces += [first, last] if dash and int(last) == int(first) + 1 else [piece]
    if pieces[-1] == "...":
        return f"workers {', '.join(pieces)}"
    if len(pieces) == 1:
        return f"worker{'s' if '-' in ranges else ''} {ranges}"
    return f"workers {', '.join(pieces[:-1])} and {pieces[-1]}"


def pulls_text(n):
    return "a pull" if n == 1 else f"{n} pulls"


def pushed_text(arrived):
    return f"{arrived} {'has' if arrived == 1 else 'have'} pushed"


# ---- work by plan: a worker of /pbox/work

def results_text(x):
    """What results are in where that is chosen for some rounds (compress=), and why; empty: it is not."""
    return x["results"] + (f" ({x['why'].replace('_', ' ')})" if "why" in x else "") if "results" in x else ""


WORK_HEAD = ["state", "slots", "s/slot", "predicted s", "seen s", "idle %", "memory", "stolen", "lost"]


def work_row(number, x):
    """Its number, and what is below WORK_HEAD."""
    def seconds(key):
        return f"{x[key] / 1e6:.4f}" if x.get(key) else "-"
    idle = f"{x['idle_permille'] / 10:.1f}" if "idle_permille" in x else "-"
    return [number, "here" if x["here"] else "gone", x["slots"], seconds("slot_us"), seconds("predicted_us"), seconds("seen_us"), idle,
            memory_text(x), x.get("stolen_slots", "-"), x.get("lost_slots", "-")]


def memory_text(x):
    """Slots whose samples a worker's memory holds; short: less than one."""
    if "memory_samples" not in x:
        return "-"
    have, need = x["memory_samples"], x["slot_samples"]
    return f"short: {have} of {need}" if have < need else f"{have / need:.0f} slots" if have < 1000 * need else "ample"


def parser(program, description, status):
    """A command line that names a box."""
    p = argparse.ArgumentParser(prog=program, description=description, epilog=f"Exit status: {status}.")
    p.add_argument("-f", "--file-prefix", default="rte", metavar="PREFIX", help="EAL's --file-prefix of the box (default rte)")
    add_version(p)
    return p


def run(program, body):
    """The exit status of a program that prints what a box says."""
    try:
        status = body()
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # who reads the text has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except BoxError as e:
        print(f"{program}: {visible(str(e))}{e.hint()}", file=sys.stderr)
        return 2
