# SPDX-License-Identifier: BSD-3-Clause
"""Which tests a change can affect, the nearest first; what `test/run changed` runs.

A change is a set of files. Edges lead from a file to what is made from it or uses it:

  - the build's graph: sources to objects, libraries and programs (build.ninja, and ninja's list of included headers);
  - scripts: a file of test/, usertools/, config/ or doc/ to each script that names it.

A test is affected if an edge leads from a changed file to its program or script. How near it is: the tests of the changed
file's own folder first (test/unit/X of lib/X, the planted bugs of the file, a script that is the file), then what has the
fewest edges between. What does not fit into the time is left out, and named.
"""

import collections
import functools
import os
import re
import subprocess

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCRIPT_FOLDERS = ("test/func", "test/chaos", "test/perf", "test/science", "test/spec", "test/golden", "usertools", "config", "doc")
# what every program of its folder uses without naming it in a way that is found
TOO_COMMON = {"meson.build", "README.md", "__init__.py", "run", "pbox"}
ASIDE = 3.0  # how much further what is not of the file's own folder is


def git(*words):
    return subprocess.check_output(["git", *words], cwd=TOP, text=True).splitlines()


def files_changed(since=None):
    """Changed files against `since`; by default against where this branch left main, or the last commit on main itself."""
    if not since:
        try:
            since = git("merge-base", "HEAD", "main")[0]
        except subprocess.CalledProcessError:
            since = "HEAD"
        if since == git("rev-parse", "HEAD")[0] and not git("status", "--porcelain"):
            since = "HEAD~1"
    return sorted(set(git("diff", "--name-only", since) + git("ls-files", "--others", "--exclude-standard")))


class Graph:
    """Edges from files to what is made from them; names relative to the top, those of the build folder with it."""

    def __init__(self, directory="build"):
        self.directory = directory
        self.to = collections.defaultdict(set)
        self.read_ninja()
        self.read_headers()
        self.read_scripts()

    def name(self, path):
        """As ninja writes it, relative to the build folder, or absolute."""
        path = os.path.normpath(os.path.join(TOP, self.directory, path.replace("$ ", " ").replace("$:", ":")))
        return os.path.relpath(path, TOP)

    def read_ninja(self):
        with open(os.path.join(TOP, self.directory, "build.ninja"), encoding="utf-8") as f:
            for line in f:
                if line.startswith("build ") and ": phony" not in line:
                    outs, rest = re.split(r"(?<!\$): ", line[6:].rstrip("\n"), maxsplit=1)
                    outs = [self.name(x) for x in re.split(r"(?<!\$) ", outs) if x not in ("|", "")]
                    # after || are what must only be there before
                    for x in re.split(r"(?<!\$) ", rest.split(" || ")[0])[1:]:
                        if x not in ("|", ""):
                            self.to[self.name(x)].update(outs)

    def read_headers(self):
        made = None
        for line in subprocess.check_output(["ninja", "-C", self.directory, "-t", "deps"], cwd=TOP, text=True).splitlines():
            if line.startswith("    "):
                self.to[self.name(line.strip())].add(made)
            elif ":" in line:
                made = self.name(line.split(":")[0])

    def read_scripts(self):
        scripts = [f for f in git("ls-files", *SCRIPT_FOLDERS) if not re.search(r"\.(svg|json|csv|png)$", f)]
        programs = {os.path.basename(f): f for outs in list(self.to.values()) for f in outs if re.search(r"/app/.*/[\w-]+$|\.so$", f)}
        by_name = collections.defaultdict(list)
        for f in scripts:
            name = os.path.basename(f)
            if name not in TOO_COMMON:
                by_name[name].append(f)
                if name.endswith(".py"):
                    by_name[name[:-3]].append(f)
        for name, f in programs.items():
            by_name[name].append(f)
        for script in scripts:
            if script.startswith("doc/"):
                continue  # documents name everything; their tests are edges from doc/ below
            try:
                with open(os.path.join(TOP, script), encoding="utf-8") as f:
                    text = f.read()
            except (UnicodeDecodeError, FileNotFoundError):
                continue
            for package, said in (("torch/__init__.py", "pbox.torch"), ("__init__.py", "import pbox")):
                if said in text and not script.startswith("usertools/python/pbox/"):
                    self.to["usertools/python/pbox/" + package].add(script)
            words = {w.strip(".") for w in re.findall(r"[\w.-]+", text)}
            words |= {w.rpartition(".")[2] for w in words}  # of a module
            for word in words & by_name.keys():
                for used in by_name[word]:
                    if used != script:
                        self.to[used].add(script)
        # those that take a folder as it is
        for folder, uses in ({"doc": ["test/func/docs_commands", "test/func/docs_html"], "README.md": ["test/func/docs_commands"],
                              "usertools/python": ["test/func/python_unit"], "test/golden": ["test/golden/check.py"],
                              "test/spec": ["test/spec/test_spec.py"]}).items():
            for f in git("ls-files", folder):
                self.to[f].update(set(uses) - {f})

    def distances(self, files):
        """Edges from the nearest of the files to each that can be reached."""
        far = {f: 0 for f in files}
        queue = collections.deque(files)
        while queue:
            f = queue.popleft()
            for g in self.to.get(f, ()):
                if g not in far:
                    far[g] = far[f] + 1
                    queue.append(g)
        return far


@functools.lru_cache(maxsize=None)
def plants_of_files():
    """Planted bugs by the name of the file that they are in."""
    of = collections.defaultdict(set)
    with open(os.path.join(TOP, "test", "sim", "plant.py"), encoding="utf-8") as f:
        for name, file in re.findall(r'^    \("([a-z-]+)", "(\w+\.c)"', f.read(), re.M):
            of[file].add(name)
    return of


def folder_of(path):
    """lib/X, drivers/X/Y, app/X, usertools/python...: what its tests are named after."""
    parts = path.split("/")
    return parts[1] if parts[0] in ("lib", "drivers", "app") and len(parts) > 2 else None


def unit_folder(program, units):
    """The folder in test/unit of a unit program: the one whose name its name begins with."""
    fit = [u for u in units if program == u or program.startswith(u + "_")]
    return max(fit, key=len) if fit else None


SIMULATED = {"job", "shard", "registrar", "worker", "work"}
# unit folders that are not named as what they test
ALSO = {"shard": {"engine"}, "registrar": {"engine"}, "job": {"engine"}, "test-ps": {"testps"}}


def near(program, files, far, units):
    """How near a program is to the files, the smaller the nearer; None: they cannot affect it."""
    suite, _, name = program.name.partition(" ")
    # what it is made from or runs
    ends = [os.path.relpath(w, TOP) for w in program.cmd if w.startswith("/") and w.startswith(TOP)]
    ends += [w for w in program.cmd if w.startswith("test/")]
    steps = [far[e] for e in ends if e in far]
    if program.name == "lint":
        return 1.5 if files else None
    if not steps:
        return None
    if name.startswith("sim_plant_"):
        plant = name[len("sim_plant_"):]
        of = plants_of_files()
        mine = any(plant in of.get(os.path.basename(f), ()) for f in files)
        return 1.0 if mine or any(f.startswith("test/sim/") for f in files) else 8.0
    if any(e in files for e in ends):
        return 0.0
    folders = {folder_of(f) for f in files} - {None}
    folders |= set().union(*(ALSO.get(f, set()) for f in folders)) if folders else set()
    own = unit_folder(name, units) in folders or name in folders or any(name.startswith(f + "_") for f in folders)
    if suite == "unit" and own:
        return 0.5
    if suite == "sim":
        return 2.0 if folders & SIMULATED or any(f.startswith("test/sim/") for f in files) else 8.0
    said = folders | {part for f in files for part in re.split("[_.-]", os.path.basename(f))}
    if suite in ("func", "chaos") and (min(steps) <= 2 or said & set(re.split("[_-]", name))):
        return 2.5
    return ASIDE + min(steps) + (0 if suite in ("unit", "golden", "python") else 2)


def choose(programs, files, durations, seconds, cpus, graph=None):
    """(those to run, the nearest first; those left out), of `programs`, in `seconds` on `cpus`."""
    graph = graph or Graph()
    far = graph.distances(files)
    units = sorted(os.listdir(os.path.join(TOP, "test", "unit")))
    ranked = []
    for i, p in enumerate(programs):
        distance = near(p, files, far, units)
        if distance is not None:
            ranked.append((distance, durations.cpu(p.name), i, p))
    ranked.sort(key=lambda r: r[:3])
    run, out, used = [], [], 0.0
    for _, cpu, _, p in ranked:
        # what computes shares the CPUs; what waits must end in time by itself
        if used + cpu <= seconds * cpus * 0.85 and durations.seconds(p.name) <= seconds * 0.6:
            used += cpu
            run.append(p)
        else:
            out.append(p)
    return run, out
