#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the parameters of `sircl params --json` (standard input) into sircl(7), between its two marks; without
--write it only says whether they are there. Usage: build/sircl params --json | man/params.py [--write]"""
import json
import os
import sys

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sircl.7")
BEGIN, END = '.\\" parameters: begin, by man/params.py\n', '.\\" parameters: end\n'


def text(s):
    """A line of text that roff does not take for anything else."""
    s = s.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + s if s[0] in ".'" else s


out = [".Bl -tag -width indent\n"]
for p in json.load(sys.stdin)["parameters"]:
    out.append(".It Ev %s\n" % p["name"])
    out.append(text(p["help"][0].upper() + p["help"][1:]) + ".\n")
    out.append("Default: %s; allowed: %s" % (text(p["default"]) if p["default"] else "unset", text(p["allowed"])))
    out.append("; where unset,\n.Ev %s\ncounts.\n" % p["nccl"] if "nccl" in p else ".\n")
out.append(".El\n")
page = open(PAGE, encoding="utf-8").read()
head, rest = page.split(BEGIN)
tail = rest.split(END)[1]
want = head + BEGIN + "".join(out) + END + tail
if want == page:
    sys.exit(0)
if sys.argv[1:] != ["--write"]:
    print("sircl(7) is not what the table of parameters says: build/sircl params --json | man/params.py --write")
    sys.exit(1)
open(PAGE, "w", encoding="utf-8").write(want)
