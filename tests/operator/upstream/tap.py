#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`go test -v` on standard input, TAP on standard output: one line for each test, its output before a failed
one. Exits with 1 when a test failed or none ran."""

import re
import sys

verdict = re.compile(r"^( *)--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)")
n = failed = 0
kept: "list[str]" = []
for line in sys.stdin:
    found = verdict.match(line)
    if not found:
        kept.append(line.rstrip("\n"))
        continue
    indent, what, name, seconds = found.groups()
    if indent and what != "FAIL":
        continue  # of a subtest the failures suffice
    if what == "FAIL":
        failed += 1
        print("\n".join("# " + text for text in kept[-60:]))
    kept = []
    if indent:
        continue
    n += 1
    skip = " # SKIP" if what == "SKIP" else f" # {seconds} s"
    print(f"{'not ok' if what == 'FAIL' else 'ok'} {n} - {name}{skip}", flush=True)
print(f"1..{n}")
if n == 0 or failed:  # a panic comes after the verdict
    print("\n".join("# " + text for text in kept[-60:]))
sys.exit(1 if failed or n == 0 else 0)
