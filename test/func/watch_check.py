#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What test/func/watch looks at, one check a call: watch_check.py CHECK ARGUMENT...; exit status 0 is good."""

import glob
import http.client
import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True


def read(*path):
    with open(os.path.join(TOP, *path), encoding="utf-8") as f:
        return f.read()


def program(name):
    path = os.path.join(TOP, "usertools", name)
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def same(what, a, b):
    a, b = set(a), set(b)
    assert a == b, f"{what}: only here {sorted(a - b)[:9]}, only there {sorted(b - a)[:9]}"


def table_of(pbox):
    counters = json.loads(subprocess.check_output([pbox, "--counters"], text=True))
    blocks = {}
    for c in counters:
        assert c["name"] not in blocks.setdefault(c["block"], {}), c
        assert c["help"] and c["kind"] in ("counter", "gauge"), c
        blocks[c["block"]][c["name"]] = c
    return blocks


def check_source():
    """Every array of definitions is in the one list, and blocks are registered from there only."""
    listed = read("lib/control/tables.c")
    arrays = []
    for path in glob.glob(os.path.join(TOP, "lib/**/*.[ch]"), recursive=True) + \
            glob.glob(os.path.join(TOP, "drivers/**/*.[ch]"), recursive=True) + \
            glob.glob(os.path.join(TOP, "app/pbox/*.[ch]")):
        name, text = os.path.relpath(path, TOP), read(path)
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        found = re.findall(r"\bstruct\s+pbox_stat_def\s+(\w+)\s*\[", text)
        arrays += [x for x in found if name.endswith(".c")]
        if name.startswith("lib/stats/"):
            continue
        if "pbox_stats_register(" in text:
            assert name == "lib/control/stats.c", f"{name} registers a block that is not of the list"
    assert len(arrays) >= 9, arrays
    for x in arrays:
        rows = re.findall(r"\[PBOX_COUNTERS_\w+\] = \{[^}]*\b" + x + r"\b[^}]*\}", listed)
        assert len(rows) == 1, f"{x} is in lib/control/tables.c {len(rows)} times"


def check_doc(pbox):
    made = subprocess.run([os.path.join(TOP, "usertools/mkcounters")], check=True, text=True, stdout=subprocess.PIPE,
                          input=subprocess.check_output([pbox, "--counters"], text=True)).stdout
    assert made == read("doc/counters.md"), "pbox --counters | usertools/mkcounters > doc/counters.md"


def check_telemetry(pbox, prefix):
    """A box with a job shows every name of the table, and no other."""
    ctl, table = program("pbox-ctl"), table_of(pbox)
    box = ctl.Box(prefix)
    same("blocks", box.ask("/pbox/counters"), table)
    for block, defs in table.items():
        told = box.ask("/pbox/counters", block)
        same(block, told, defs)
        for name, x in told.items():
            assert (x["unit"], x["kind"], x["help"]) == tuple(defs[name][k] for k in ("unit", "kind", "help")), x
    for block in ("port", "core", "shard", "registrar", "control"):
        instances = [x for x in box.all_pages("/pbox/stats", block).values() if isinstance(x, dict)]
        assert instances, block
        for x in instances:
            same(block, x, table[block])
    for command, word, prefix_, block in (("/pbox/cores", None, "core", "load"), ("/pbox/jobs", None, "job", "job"),
                                          ("/pbox/workers", "j1", "worker", "worker"), ("/pbox/ports", None, "port", "port")):
        found = ctl.entries(box.all_pages(command, word), prefix_)
        assert found, command
        for _, x in found:
            assert set(table[block]) <= set(x), (command, set(table[block]) - set(x))
    for x in box.ask("/pbox/pools").values():
        assert set(table["pool"]) <= set(x), x


def parse(text):
    """Prometheus' text format: family -> (kind, help, samples)."""
    families, name = {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, _, rest = line[7:].partition(" ")
            families.setdefault(name, {"samples": []})["help"] = rest
        elif line.startswith("# TYPE "):
            name, _, rest = line[7:].partition(" ")
            families.setdefault(name, {"samples": []})["kind"] = rest
        elif line and not line.startswith("#"):
            found = re.fullmatch(r"(\w+)(?:\{(.*)\})? ([-+.e\d]+)", line)
            assert found, line
            families[found[1]]["samples"].append((dict(re.findall(r'(\w+)="([^"]*)"', found[2] or "")), float(found[3])))
    return families


def expected(export, table):
    names = {}
    for block, defs in table.items():
        for c in defs.values():
            name = export.family(block, c["name"], c["unit"]) + ("_total" if c["kind"] == "counter" else "")
            assert name not in names, f"{name} is two counters"
            names[name] = c
    return names


def check_exporter(pbox, prefix):
    export, table = program("pbox-exporter"), table_of(pbox)
    text = subprocess.check_output([os.path.join(TOP, "usertools/pbox-exporter"), "-f", prefix, "--once"], text=True)
    families, names = parse(text), expected(export, table)
    optional = ("pbox_finding", "pbox_rack_", "pbox_work_", "pbox_map_", "pbox_moving_", "pbox_times_", "pbox_stale_", "pbox_compress_")  # of jobs of some kinds
    same("metrics", set(families) - {"pbox_finding"}, set(names) | {x for x in export.OWN if not x.startswith(optional)})
    assert families["pbox_fleet_boxes"]["samples"] == [({"fleet": ""}, 1.0)], families["pbox_fleet_boxes"]
    for name, c in names.items():
        f = families[name]
        assert f["kind"] == c["kind"] and f["help"] == c["help"] and f["samples"], (name, f)
    assert families["pbox_up"]["samples"] == [({}, 1.0)]
    for x in ("pbox_job_joined_workers", "pbox_worker_round", "pbox_core_rx_packets_total", "pbox_shard_rounds_fragments_total"):
        assert all(v > 0 for _, v in families[x]["samples"]), x
    promtool = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
    assert promtool.returncode == 0 and not promtool.stdout, promtool.stdout


def check_gone(prefix):
    """A box that is not there is pbox_up 0, and exit status 1."""
    run = subprocess.run([os.path.join(TOP, "usertools/pbox-exporter"), "-f", prefix + "-not", "--once"], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert run.returncode == 1 and parse(run.stdout)["pbox_up"]["samples"] == [({}, 0.0)] and "no" in run.stderr.lower(), run


def check_dashboard(pbox):
    """The dashboard and the alerts use what exists."""
    export = program("pbox-exporter")
    exist = set(expected(export, table_of(pbox))) | {name + "_total" * (own[0] == "counter") for name, own in export.OWN.items()}
    board = json.loads(read("config/prometheus/pbox-dashboard.json"))
    rows = [panel["title"].split()[0] for panel in board["panels"] if panel["type"] == "row"]
    assert rows == ["Plans", "Clocks", "Boxes"], rows
    places = [panel["gridPos"] for panel in board["panels"]]
    taken = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(taken) == len(set(taken)) and len({panel["id"] for panel in board["panels"]}) == len(places), "panels lie on each other"
    used = [t["expr"] for panel in board["panels"] for t in panel.get("targets", ())]
    used += [x["query"] for x in board["templating"]["list"]]
    used += re.findall(r"expr: (.*?)\n        (?:for|labels):", read("config/prometheus/alerts.yml"), re.S)
    names = {x for text in used for x in re.findall(r"\bpbox_\w+", text)}
    assert len(names) > 20 and names <= exist, names - exist


def check_rules():
    for cmd in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        run = subprocess.run(["promtool", *cmd], cwd=os.path.join(TOP, "config/prometheus"), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert run.returncode == 0 and "SUCCESS" in run.stdout, run.stdout


def get(url, accept=None):
    # no proxy is asked for what is on this machine
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers={"Accept": accept} if accept else {}), timeout=120) as r:
        return r.headers["Content-Type"], r.read().decode()


def check_scrape(exporter, prometheus):
    """OpenMetrics over HTTP, and a real Prometheus that takes it."""
    end = time.monotonic() + 120
    while True:
        try:
            kind, text = get(f"http://{exporter}/metrics", "application/openmetrics-text; version=1.0.0")
            break
        except OSError:  # it is about to listen
            assert time.monotonic() < end
            time.sleep(0.1)
    assert kind.startswith("application/openmetrics-text"), kind
    assert text.endswith("# EOF\n") and "# UNIT pbox_core_rx_bytes bytes\n" in text, text[-80:]
    for line in text.splitlines():
        unit = re.fullmatch(r"# UNIT (\w+) (\w+)", line)
        assert not unit or unit[1].endswith("_" + unit[2]), line
    kind, text = get(f"http://{exporter}/")
    assert kind.startswith("text/html") and 'href="/metrics"' in text and "jobs: j1" in text, text
    try:
        get(f"http://{exporter}/other")
        raise AssertionError("only / and /metrics are there")
    except urllib.error.HTTPError as e:
        assert e.code == 404
    end = time.monotonic() + 120
    while True:
        try:
            target = json.loads(get(f"http://{prometheus}/api/v1/targets")[1])["data"]["activeTargets"][0]
            query = urllib.parse.quote('pbox_worker_contributions_fragments_total{job_name="j1"}')
            found = json.loads(get(f"http://{prometheus}/api/v1/query?query={query}")[1])["data"]["result"]
            if target["health"] == "up" and len(found) == 2 and all(float(x["value"][1]) > 0 for x in found):
                break
            text = json.dumps([target, found])
        except (OSError, KeyError, IndexError) as e:
            text = repr(e)
        assert time.monotonic() < end, text
        time.sleep(0.3)
    meta = json.loads(get(f"http://{prometheus}/api/v1/metadata?metric=pbox_core_rx_bytes")[1])["data"]
    assert meta["pbox_core_rx_bytes"][0]["type"] == "counter" and meta["pbox_core_rx_bytes"][0]["unit"] == "bytes", meta


def check_balance(prefix):
    """At rest all that was received is accounted for, at every level; on every core, too."""
    ctl = program("pbox-ctl")
    box = ctl.Box(prefix)
    end = time.monotonic() + 120
    while True:
        answers = [box.ask("/pbox/drops")] + [box.ask("/pbox/drops", i) for i in range(box.ask("/pbox/cores")["cores"])]
        levels = [(name, x) for a in answers for name, x in a.items() if isinstance(x, dict) and "received" in x]
        if all(x["unaccounted"] == 0 for _, x in levels) or time.monotonic() > end:
            break
        time.sleep(0.05)
    assert len(levels) >= 8
    for name, x in levels:
        drops = sum((x["drops"] or {}).values())
        assert x["unaccounted"] == 0 and x["dropped"] == drops, (name, x)
        assert x["received"] + x.get("from_other_cores", 0) == x["accepted"] + drops, (name, x)
    return answers[0]


def check_hostile(prefix):
    """What the enemies sent is in the drops, by name."""
    end = time.monotonic() + 120
    while True:  # some of it may still be on its way
        a = check_balance(prefix)
        if all(a[x]["dropped"] > 0 for x in ("frames", "control_frames", "packets")) and \
                {"frame_magic", "frame_truncated"} & set(a["frames"]["drops"] or {}) and \
                "drop_session_unknown" in (a["data_frames"]["drops"] or {}):
            break
        assert time.monotonic() < end, a
        time.sleep(0.1)


def check_errors(prefix):
    """Parameters are taken strictly, and errors say what is possible."""
    box = program("pbox-ctl").Box(prefix)
    wrong = ["/pbox/workers", "/pbox/workers,nobody", "/pbox/workers,j1,2", "/pbox/workers,j1,-1", "/pbox/workers,j1,0,1",
             "/pbox/tables,j1,x", "/pbox/tables", "/pbox/work", "/pbox/work,j1", "/pbox/work,nobody", "/pbox/work,j1,2",
             "/pbox/cores,1x", "/pbox/cores,99", "/pbox/cores,0,0", "/pbox/ports,77",
             "/pbox/ports, 0", "/pbox/pools,1", "/pbox/drops,9", "/pbox/drops,+0", "/pbox/counters,none", "/pbox/stats,none",
             "/pbox/stats,job", "/pbox/jobs,99999999999999999999", "/pbox/log,loud", "/pbox/log,info,x", "/pbox/set,drain",
             "/pbox/set,drain,3", "/pbox/set,drain,off", "/pbox/set,drain,1h", "/pbox/set,drain,-1s", "/pbox/set,nothing,1s",
             "/pbox/set,stats-interval,10ms", "/pbox/kick", "/pbox/kick,j1", "/pbox/kick,j1,2", "/pbox/kick,j1,x",
             "/pbox/kick,nobody,0", "/pbox/drain,maybe", "/pbox/log," + "x" * 300, "/pbox/why,nobody", "/pbox/health,1"]
    for text in wrong:
        answer = box.ask(*text.split(",", 1))
        assert list(answer) == ["error"] and len(answer["error"]) > 8, (text, answer)


def check_names(prefix, odd, number):
    """Names as they are: host 'b\u00fcro', job and tensor 'gr\u00f6\u00dfe', one with all that is odd, one that is a number."""
    size, buero = "gr\u00f6\u00dfe", "b\u00fcro"

    def run(*words):
        was = subprocess.run([os.path.join(TOP, "usertools", words[0]), "-f", prefix, *words[1:]], text=True, timeout=120,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        for text in (was.stdout, was.stderr):
            assert all(c.isprintable() or c == "\n" for c in text), (words, text)
        return was

    def ctl(*words):
        was = run("pbox-ctl", "-j", *words)
        assert was.stdout, (words, was)
        return json.loads(was.stdout)

    assert {size, odd, number} <= {x["name"] for x in ctl("jobs").values() if isinstance(x, dict)}
    workers = ctl("workers", size, "-i", "0")
    assert workers["worker_0"]["host"] == buero and workers["worker_1"]["host"] == '\ufffd"\\', workers
    assert ctl("workers", odd, "-i", "0")["worker_0"]["host"] == odd
    # a name comes first, then a number; both can be said
    for word, job in ((number, number), ("#" + number, size), ("name:" + number, number), ("name:" + size, size)):
        assert ctl("tables", word)["job"] == job, word
    end = time.monotonic() + 120
    while True:  # it waits for the worker that was stopped
        why, health = ctl("why", size), ctl("health")
        said = [x for _, x in program("pbox-ctl").entries(health, "finding") if x.get("job") == size]
        if why.get("rounds") and said:  # a starved core may answer too late
            break
        assert time.monotonic() < end, (why, health)
        time.sleep(0.1)
    assert why["rounds"]["0"]["tensor"] == size and why["waited_for"]["1"]["host"] == '\ufffd"\\', why
    assert f"job '{size}' waits for worker 1 (\ufffd" in said[0]["text"] and said[0]["next"], said
    for words, want in ((("jobs",), size), (("workers", size), buero), (("why", size), f"tensor '{size}'"), (("health",), f"job '{size}'"),
                        (("workers", odd, "-i", "0"), "\\n\U0001f600+3")):
        was = run("pbox-ctl", *words)
        assert want in was.stdout and not was.stderr, (words, want, was)
    was = run("pbox-top", "-1")
    assert was.returncode == 0 and buero in was.stdout and size in was.stdout, was
    was = run("pbox-exporter", "--once")
    assert "\npbox_scrape_errors 0\n" in was.stdout and "\npbox_up 1\n" in "\n" + was.stdout, was
    steers = {c: c.encode("unicode_escape").decode() for c in odd if not c.isprintable() and c != "\n"}
    assert len(steers) == 4
    label = "".join(steers.get(c, c) for c in odd).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    for want in (f'job_name="{label}"', f'job_name="{size}",worker="0",host="{buero}"'):
        assert want in was.stdout, want
    if shutil.which("promtool"):
        promtool = subprocess.run(["promtool", "check", "metrics"], input=was.stdout, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)
        assert promtool.returncode == 0 and not promtool.stdout, promtool.stdout


def check_proxy(path, pid):
    """The readers' socket: what watches is answered, what changes the box is not; who does not read is dropped."""
    lib = program("pbox-exporter")
    end = time.monotonic() + 120
    while not os.path.exists(path):
        assert time.monotonic() < end
        time.sleep(0.05)
    box = lib.Box("none", path)
    box.connect()
    assert box.about["pid"] and "core" in box.tables
    for text in ("/pbox/jobs", "/pbox/workers,j1", "/pbox/health", "/pbox/cores,0", "/pbox/why,j1", "/pbox/boxes"):
        assert box.ask(*text.split(",", 1)), text
    answers = [box.exchange("/pbox/why,j1")["/pbox/why"] for _ in range(100)]  # which asks a data core as well
    assert any("20 times a second" in a.get("error", "") for a in answers), answers[-1]
    for text in ("/pbox/kick,j1,0", "/pbox/drain,on", "/pbox/snapshot,j1", "/pbox/restore,j1", "/pbox/set,drain,1s", "/pbox/log,debug",
                 "/pbox/failover,j1,0", "/", "/help,/", "/ethdev/list", "/pbox/jobs/../kick,j1,0", "/pbox/kick"):
        answer = box.exchange(text)
        assert "is for watching" in answer[text.split(",")[0]]["error"], (text, answer)
    end = time.monotonic() + 120
    while not all(x["state"] == "joined" for page in box.pages("/pbox/workers", "j1") for _, x in lib.entries(page, "worker")):
        assert time.monotonic() < end  # one that got no CPU was silent for a while
        time.sleep(0.1)
    deaf = lib.Connection(path=path)
    deaf.connect()
    deaf.sock.setblocking(False)
    try:
        for _ in range(100000):
            deaf.sock.send(b"/pbox/stats")
    except OSError:  # full, or ended
        pass
    others = []
    for _ in range(20):  # more than DPDK has room for
        others.append(lib.Connection(path=path))
        others[-1].connect()
    assert all(x.exchange("/pbox/jobs")["/pbox/jobs"]["jobs"] == 1 for x in others)
    for x in [box, deaf, *others]:
        x.close()
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        assert f.read().split()[19] == "1", "one thread"


class Spoiled:
    """The telemetry of a box, but for the answers to one command."""

    def __init__(self, box, path):
        self.box, self.command, self.text = box, None, b""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.bind(path)
        self.sock.listen(8)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.sock.accept()
            with connection, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as box:
                box.connect(self.box)
                connection.send(box.recv(65536))
                while True:
                    asked = connection.recv(4096)
                    if not asked:
                        break
                    box.send(asked)
                    answer = box.recv(65536)
                    words = asked.decode().split(",")
                    hit = self.command in (words[0], asked.decode())
                    connection.send(self.text if hit else answer)


def check_spoiled(prefix, path):
    """An answer that cannot be read, or is an error, costs its own metrics and no others; the box is up."""
    proxy = Spoiled(program("pbox-ctl").Box(prefix).path, path)
    commands = ["/pbox/cores", "/pbox/ports", "/pbox/stats,registrar", "/pbox/pools", "/pbox/jobs", "/pbox/workers", "/pbox/health",
                "/pbox/counters,core"]
    own = {"pbox_up", "pbox_scrape_errors", "pbox_scrape_seconds"}

    def scrape():
        run = subprocess.run([os.path.join(TOP, "usertools/pbox-exporter"), "-s", path, "--once"], text=True, timeout=120,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        assert run.returncode == 0 and parse(run.stdout)["pbox_up"]["samples"] == [({}, 1.0)], (proxy.command, proxy.text, run)
        return parse(run.stdout), run.stderr

    whole, said = scrape()
    assert whole["pbox_scrape_errors"]["samples"] == [({}, 0.0)] and not said, said
    for proxy.command in commands:
        name = proxy.command.split(",")[0].encode()
        for proxy.text in (b'{"%s": {"name": "\\\xc3' % name, b'{"%s": {"error": "no"}}' % name):
            if name == b"/pbox/workers" and b"error" in proxy.text:
                continue  # as of a job that has ended meanwhile
            found, said = scrape()
            assert said, (proxy.command, proxy.text)
            lost = set(whole) - set(found)
            kept = "pbox_port_rx_packets_total" if "core" in proxy.command else "pbox_core_rx_packets_total"
            assert own | {kept} <= set(found) and (lost or proxy.command == "/pbox/health"), (proxy.command, proxy.text, lost)


def check_packaged(prefix):
    """A packaged box is found without a RUNTIME_DIRECTORY."""
    env = {k: v for k, v in os.environ.items() if k not in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR")}
    for tool in (["pbox-ctl", "pools"], ["pbox-top", "-1"], ["pbox-exporter", "--once"]):
        run = subprocess.run([os.path.join(TOP, "usertools", tool[0]), "-f", prefix, *tool[1:]], text=True, timeout=120, env=env,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        assert run.returncode == 0 and not run.stderr, run


def check_probes(prefix):
    """/healthz without --page, and HEAD: as GET, without a body; not of what is not there."""
    run = subprocess.Popen([os.path.join(TOP, "usertools/pbox-exporter"), "-f", prefix, "-l", "127.0.0.1:9519"])

    def ask(method, path):
        connection = http.client.HTTPConnection("127.0.0.1", 9519, timeout=120)
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def after_head(path):
        """What comes after the headers: a client of HTTP would not look."""
        with socket.create_connection(("127.0.0.1", 9519), timeout=120) as sock:
            sock.sendall(f"HEAD {path} HTTP/1.0\r\n\r\n".encode())
            return sock.makefile("rb").read().partition(b"\r\n\r\n")[2]

    try:
        end = time.monotonic() + 120
        while True:
            try:
                status, _, body = ask("GET", "/healthz")
                break
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.05)
        assert (status, json.loads(body)) == (200, {"up": True}), (status, body)
        for path in ("/", "/metrics", "/healthz", "/other"):
            got, head = ask("GET", path), ask("HEAD", path)
            assert head[0] == got[0] and head[1]["Content-Type"] == got[1]["Content-Type"] and got[2] and not after_head(path), (path, got, head)
            assert int(head[1]["Content-Length"]) > 0, (path, head)
    finally:
        run.terminate()
        run.wait(120)
    run = subprocess.Popen([os.path.join(TOP, "usertools/pbox-exporter"), "-f", prefix + "-not", "-l", "127.0.0.1:9519"], stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                status, _, body = ask("GET", "/healthz")
                break
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.05)
        assert (status, json.loads(body)) == (503, {"up": False}), (status, body)
        assert ask("HEAD", "/healthz")[0] == 503
    finally:
        run.terminate()
        run.wait(120)


def check_slow(prefix):
    """Clients that send nothing, or a byte now and then: as many as there is room for, and as long as it is said."""
    run = subprocess.Popen([os.path.join(TOP, "usertools/pbox-exporter"), "-f", prefix, "-l", "127.0.0.1:9519"])
    try:
        end = time.monotonic() + 120
        held = []
        while len(held) < 24:
            try:
                held.append(socket.create_connection(("127.0.0.1", 9519), timeout=120))
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.05)
        with open(f"/proc/{run.pid}/status", encoding="ascii") as f:
            threads = int(re.search(r"Threads:\s+(\d+)", f.read())[1])
        assert threads <= 17, threads
        # all of them are sent away, also who dribbles, and then there is room again
        while True:
            for x in held:
                try:
                    x.send(b"G")
                except OSError:
                    pass
            try:
                assert "pbox_up 1" in get("http://127.0.0.1:9519/metrics")[1]
                break
            except OSError:
                assert time.monotonic() < end + 20
                time.sleep(0.3)
        for x in held:
            x.close()
    finally:
        run.terminate()
        run.wait(120)


def check_connections(prefix):
    """Who asks and does not read harms itself alone; where there is no connection left, the tools say so."""
    tools = [["pbox-ctl", "jobs"], ["pbox-top", "-1"], ["pbox-exporter", "--once"]]

    def run(name, argument):
        return subprocess.run([os.path.join(TOP, "usertools", name), "-f", prefix, argument], text=True, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    ctl = program("pbox-ctl")

    def box(_):
        end = time.monotonic() + 120
        while True:  # the thread of one that was closed may still be there
            try:
                return ctl.Box(prefix)
            except ctl.BoxError:
                if time.monotonic() > end:
                    raise

    stuck = box(0)
    stuck.sock.setblocking(False)
    try:
        for _ in range(100000):
            stuck.sock.send(b"/pbox/stats")
        raise AssertionError("all of that was answered")
    except BlockingIOError:
        pass
    for tool in tools:
        assert run(*tool).returncode == 0, tool
    held = [box(i) for i in range(9)]
    for tool in tools:
        was = run(*tool)
        assert was.returncode and "ten connections are open" in was.stderr, (tool, was)
    assert held[0].ask("/pbox/jobs") is not None
    for x in held:
        x.sock.close()
    end = time.monotonic() + 120
    while run(*tools[0]).returncode:  # each is let go of by its thread
        assert time.monotonic() < end, run(*tools[0])
    stuck.sock.close()


def main():
    globals()["check_" + sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
