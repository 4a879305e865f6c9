# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Finds libpbox-client and declares its interface (lib/client/pbox_client.h) to ctypes."""

import ctypes as ct
import glob
import os
from typing import Any, List, Optional

SONAME = "libpbox-client.so.1"

OK, PENDING, INVALID, DEADLINE, CLOSED = 0, 1, -1, -9, -13
PUSHPULL, PUSH, PULL, INIT, FETCH, GIVE = range(6)
ALL_GROUPS = 0xFFFF
MAX_GROUPS = 1024  # of a table (doc/protocol.md R5.1a)
MAX_SLOTS = MAX_WORKERS = 4096
MAX_ELEMENTS = 1 << 48
ALL_TENSORS = (1 << 32) - 1
MOST_NODES = 24  # that a worker brings in a round
IN_JOB, LOOK, BEGIN = range(3)  # Work.newcomer
OWN, KEEP, TURN = range(3)  # Work.keep
DECISION = 14  # an id of SET that is no hyper-parameter


class Error(ct.Structure):
    _fields_ = [("code", ct.c_int), ("text", ct.c_char * 512)]


class Conf(ct.Structure):
    _fields_ = [
        ("size", ct.c_size_t),
        ("box", ct.c_char_p), ("job", ct.c_char_p), ("secret", ct.c_char_p),
        ("bind", ct.c_char_p), ("host", ct.c_char_p),
        ("worker", ct.c_int), ("workers", ct.c_uint), ("mtu", ct.c_uint),
        ("window", ct.c_uint), ("lease_ms", ct.c_uint), ("timeout_ms", ct.c_uint),
        ("join_timeout_ms", ct.c_uint), ("gso", ct.c_int), ("spin_us", ct.c_int),
        ("min_rto_us", ct.c_uint),
        ("transport", ct.c_char_p), ("transport_args", ct.c_char_p),
        ("keep_copies", ct.c_int), ("policy", ct.c_uint), ("auth", ct.c_uint),
        ("patience_ms", ct.c_uint), ("left_ms", ct.c_uint), ("run", ct.c_char_p),
        ("slots", ct.c_uint), ("threads", ct.c_uint), ("least", ct.c_uint),
    ]


class TensorDecl(ct.Structure):
    _fields_ = [("name", ct.c_char_p), ("elements", ct.c_uint64), ("group", ct.c_uint16)]


class TableDecl(ct.Structure):
    _fields_ = [
        ("size", ct.c_size_t),
        ("mode", ct.c_uint8), ("op", ct.c_uint8), ("optimiser", ct.c_uint8),
        ("push_format", ct.c_uint8), ("pull_format", ct.c_uint8),
        ("n", ct.c_uint), ("tensors", ct.POINTER(TensorDecl)),
        ("first_round", ct.c_uint32), ("discipline", ct.c_uint8), ("hold", ct.c_uint8), ("mixed", ct.c_uint8),
    ]


class Versions(ct.Structure):
    _fields_ = [
        ("size", ct.c_size_t), ("version", ct.c_double), ("lowest", ct.c_uint32), ("highest", ct.c_uint32),
        ("others", ct.c_double), ("own", ct.c_uint32), ("own_seen", ct.c_uint32), ("slowest", ct.c_uint32),
        ("members", ct.c_uint32), ("pulls", ct.c_uint32),
    ]


class Io(ct.Structure):
    # "in" is a keyword of Python; the layout is what counts
    _fields_ = [("tensor", ct.c_uint32), ("input", ct.c_void_p), ("output", ct.c_void_p)]


class Op(ct.Structure):
    _fields_ = [
        ("size", ct.c_size_t), ("table", ct.c_uint32), ("kind", ct.c_int), ("io", ct.POINTER(Io)), ("n", ct.c_uint), ("weight", ct.c_uint32),
        ("priority", ct.c_uint8), ("by_nodes", ct.c_uint8), ("again", ct.c_uint8), ("bounded", ct.c_uint8), ("bound", ct.c_uint32),
        ("nodes", ct.c_uint), ("node_in", ct.POINTER(ct.c_void_p)), ("node_weight", ct.POINTER(ct.c_uint32)),
        ("factor", ct.c_float), ("pulls_ago", ct.c_uint32),
    ]


class Node(ct.Structure):
    _fields_ = [("first", ct.c_uint16), ("slots", ct.c_uint16)]


class Work(ct.Structure):
    _fields_ = [
        ("size", ct.c_size_t), ("round", ct.c_uint32), ("slots", ct.c_uint32),
        ("compute", ct.c_double), ("fixed", ct.c_double), ("up", ct.c_double), ("down", ct.c_double),
        ("seed", ct.c_uint64), ("samples", ct.c_uint64), ("batch", ct.c_uint32), ("trained", ct.c_uint32),
        ("edition", ct.c_uint32), ("plan", ct.c_uint32), ("members", ct.c_uint32), ("leads", ct.c_uint32),
        ("nodes", ct.c_uint32), ("next_from", ct.c_uint32), ("next_ranges", ct.c_uint32), ("next", Node * 24), ("keep", ct.c_uint32),
        ("newcomer", ct.c_uint32), ("group", ct.c_uint32), ("now", ct.c_uint32), ("now_trained", ct.c_uint32), ("hyper", ct.c_double * 9),
        ("memory_known", ct.c_uint32), ("fits", ct.c_uint32), ("changed", ct.c_uint32),
        ("hyper_more", ct.c_double * 4), ("decided", ct.c_uint32), ("decision", ct.c_double),
    ]


class Norm(ct.Structure):
    _fields_ = [("size", ct.c_size_t), ("square", ct.c_double), ("non_finite", ct.c_uint64), ("coefficient", ct.c_double), ("known", ct.c_uint32)]


class Waiting(ct.Structure):
    _fields_ = [("timeout_ms", ct.c_uint), ("state", ct.c_uint64 * 8)]


class Hyper(ct.Structure):
    _fields_ = [("id", ct.c_uint16), ("value", ct.c_double)]


class Stats(ct.Structure):
    _fields_ = [("size", ct.c_size_t)] + [
        (n, ct.c_uint64) for n in (
            "tx_frames", "tx_bytes", "rx_frames", "rx_bytes",
            "useful_tx_bytes", "useful_rx_bytes",
            "retransmitted_frames", "retransmitted_bytes", "probes",
            "rx_duplicates", "rx_dropped", "fragments_done", "operations_done",
            "srtt_ns", "rttvar_ns", "min_rtt_ns", "held_ns_sum")
    ] + [
        (n, ct.c_uint32) for n in (
            "window", "window_max", "gso_active", "gro_active", "mtu", "endpoints",
            "contributors")
    ] + [
        (n, ct.c_uint64) for n in (
            "samples", "tx_by_ref", "tx_copied", "tx_failed", "rx_failed",
            "restarts", "restored_fragments", "restore_ms",
            "rx_drop_auth", "auth", "unproven", "partial_results", "redone_pushes", "lost_pushes",
            "stateless_fragments")
    ]


DoneFn = ct.CFUNCTYPE(None, ct.c_void_p, ct.c_int, ct.c_char_p)

_P = ct.c_void_p  # struct pbox_client *
_ERR = ct.POINTER(Error)

_PROTOTYPES = {
    "pbox_client_version": (ct.c_char_p, []),
    "pbox_client_code_name": (ct.c_char_p, [ct.c_int]),
    "pbox_client_name": (ct.c_char_p, [ct.c_char_p, ct.c_uint]),
    "pbox_client_conf_init_sized": (None, [ct.POINTER(Conf), ct.c_size_t]),
    "pbox_client_open": (ct.c_int, [ct.POINTER(_P), ct.POINTER(Conf), _ERR]),
    "pbox_client_worker": (ct.c_uint, [_P]),
    "pbox_client_workers": (ct.c_uint, [_P]),
    "pbox_client_slots": (ct.c_uint, [_P]),
    "pbox_client_nodes": (ct.c_int, [_P, ct.c_uint32, ct.POINTER(Node), ct.c_uint]),
    "pbox_client_declare": (
        ct.c_int, [_P, ct.POINTER(TableDecl), ct.c_uint, ct.POINTER(ct.c_uint32), _ERR]),
    "pbox_client_next_round": (ct.c_uint32, [_P, ct.c_uint32]),
    "pbox_client_plain": (ct.c_int, [_P, ct.c_uint32, ct.c_uint32, ct.c_int, _ERR]),
    "pbox_client_set": (
        ct.c_int,
        [_P, ct.c_uint32, ct.c_uint16, ct.c_uint32, ct.POINTER(Hyper), ct.c_uint, _ERR]),
    "pbox_client_submit": (ct.c_int, [_P, ct.POINTER(Op), ct.POINTER(ct.c_uint64), _ERR]),
    "pbox_client_factor": (ct.c_float, [ct.c_float]),
    "pbox_client_versions": (
        ct.c_int, [_P, ct.c_uint32, ct.c_uint32, ct.POINTER(Versions), _ERR]),
    "pbox_client_work": (ct.c_int, [_P, ct.c_uint32, ct.POINTER(Work), ct.c_uint, _ERR]),
    "pbox_client_norm": (ct.c_int, [_P, ct.c_uint32, ct.c_uint32, ct.c_double, ct.POINTER(Norm), ct.c_uint, _ERR]),
    "pbox_client_work_due": (ct.c_int, [_P]),
    "pbox_client_slot_begin": (ct.c_int, [_P, ct.c_uint32, ct.c_uint32, ct.c_uint]),
    "pbox_client_task": (ct.c_int, [_P, ct.c_uint32, ct.c_uint32, ct.POINTER(ct.c_uint32), ct.c_uint, _ERR]),
    "pbox_client_wait": (ct.c_int, [_P, ct.c_uint64, ct.c_uint, _ERR]),
    "pbox_client_wait_on": (
        ct.c_int, [_P, ct.c_uint64, ct.POINTER(Waiting), ct.c_uint, _ERR]),
    "pbox_client_test": (ct.c_int, [_P, ct.c_uint64, _ERR]),
    "pbox_client_notify": (ct.c_int, [_P, ct.c_uint64, DoneFn, ct.c_void_p]),
    "pbox_client_status": (ct.c_int, [_P, ct.c_char_p, ct.c_size_t, _ERR]),
    "pbox_client_why": (ct.c_int, [_P, ct.c_char_p, ct.c_size_t, _ERR]),
    "pbox_client_not_finite": (ct.c_int, [_P, ct.c_char_p, ct.c_size_t, _ERR]),
    "pbox_client_silent": (ct.c_int, [_P, ct.c_char_p, ct.c_size_t, _ERR]),
    "pbox_client_stats": (None, [_P, ct.POINTER(Stats)]),
    "pbox_client_alloc": (ct.c_void_p, [_P, ct.c_size_t]),
    "pbox_client_free": (None, [_P, _P]),
    "pbox_client_close": (None, [_P]),
}


_BUNDLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", SONAME)  # usertools/mkwheel


def of_wheel() -> bool:
    """Is the library the one that came with this package, in a wheel?"""
    return not os.environ.get("PBOX_CLIENT_LIB") and os.path.exists(_BUNDLED)


def _candidates() -> List[str]:
    """Where to look, in order: what the user says, what came with this package, what is installed, the checkout's build."""
    env = os.environ.get("PBOX_CLIENT_LIB")
    if env:
        return [env]
    if of_wheel():
        return [_BUNDLED]  # of the same release, which an installed one may not be
    found = [SONAME]
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
    if os.path.exists(os.path.join(root, "lib", "client", "pbox_client.h")):
        for sub in ("lib", os.path.join("lib", "client")):
            found += sorted(glob.glob(os.path.join(root, "build", sub, SONAME)))
    return found


def _load() -> ct.CDLL:
    tried = []
    for path in _candidates():
        try:
            lib = ct.CDLL(path)
        except OSError as e:
            tried.append(f"  {path}: {e}")
            continue
        try:
            for name, (res, args) in _PROTOTYPES.items():
                fn = getattr(lib, name)
                fn.restype, fn.argtypes = res, args
        except AttributeError as e:
            tried.append(f"  {path}: not a PBox client library of this version ({e})")
            continue
        return lib
    raise ImportError(
        "the PBox client library was not found or cannot be loaded:\n" + "\n".join(tried)
        + "\nInstall it (apt install ./libpbox-client1_*.deb; or from source: meson setup build"
        " -Ddpdk=disabled && meson compile -C build && meson install -C build), or set"
        f" PBOX_CLIENT_LIB to the path of {SONAME}. Where it is installed below a prefix that the"
        " loader does not search: ldconfig, with its folder in /etc/ld.so.conf.d, or"
        " LD_LIBRARY_PATH.")


_lib: Optional[Any] = None


def get() -> Any:
    """The library, loaded at first use so that `import pbox` needs none."""
    global _lib
    if _lib is None:
        _lib = _load()
    return _lib


def conf() -> Conf:
    """A configuration with the library's defaults. Structures carry their size, so a library
    may be newer than this module; one that knows less than it is refused."""
    lib, c = get(), Conf()
    lib.pbox_client_conf_init_sized(ct.byref(c), ct.sizeof(Conf))
    if c.size != ct.sizeof(Conf):
        raise ImportError(
            f"the PBox client library in use ({lib.pbox_client_version().decode()}) is older "
            f"than this Python package: its configuration has {c.size} bytes, {ct.sizeof(Conf)} "
            "are needed. Install both from the same release, or set PBOX_CLIENT_LIB to the path "
            f"of the newer {SONAME}.")
    return c


def use(lib: Optional[Any]) -> None:
    """Replace the library by an object with the same functions (tests); None: back to it."""
    global _lib
    _lib = lib
