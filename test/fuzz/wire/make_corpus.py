#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Seeds of the fuzz targets from the golden frames; findings are added to them by hand."""

import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, os.pardir, os.pardir, "golden", "frames.json")


def write(target, name, data):
    folder = os.path.join(HERE, "corpus", target)
    os.makedirs(folder, exist_ok=True)
    name = "".join(c if c.isalnum() else "-" for c in name)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)


def main():
    with open(GOLDEN, encoding="utf-8") as f:
        golden = json.load(f)
    seen = set()
    for f in golden["frames"]:
        raw = bytes.fromhex(f["hex"])
        control = f["payload"] and f["control"] and f["drop"] is None and f["canonical"]
        if control and not (f["type"] == "ERROR" and f["type"] in seen):
            write("wire_control", f["name"], raw[2:3] + raw[62:])
            seen.add(f["type"])
        elif f["drop"] == "control_malformed" and "byte short" not in f["name"]:
            write("wire_control", f["name"], raw[2:3] + raw[62:])
        elif f["drop"] and f["drop"] != "control_malformed" or not f["control"]:
            write("wire_frame", f["name"], bytes([f["drop"] is None]) + raw)
    for d in golden["datagrams"]:
        write("wire_frame", d["name"], b"\0" + bytes.fromhex(d["hex"]))


if __name__ == "__main__":
    main()
