#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""soak.py [--seconds S] [--seed N] | --tiny N: started by horovodrun on some ranks, with CAPI_LIBRARY=libhvd.so.

The random operations of tests/python/ranks/capi_random.py for a time, all results against numpy; or N allreduces
of 4 bytes, for the count. Exits with 1 at the first wrong result and where the memory of a rank grows.
"""

import argparse
import json
import os
import sys
import tempfile
import time

RANKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python/ranks")
TINY_GROWTH_MAX = 512 << 10


def play_random():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CHECKS_DIR"] = folder
        try:
            import capi_random  # noqa: F401
        except SystemExit as end:
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    for text in filter(None, json.load(f).values()):
                        print(text, file=sys.stderr)
            return end.code
    raise AssertionError("capi_random ends by sys.exit()")


def play_tiny(n):
    import capi
    import numpy as np
    from checks import resident

    capi.init()
    x, first, began = np.ones(1, np.float32), 0, time.monotonic()
    for i in range(n):
        x[0] = 1
        capi.run("allreduce", x, name="tiny", output=x)
        assert x[0] == capi.size(), f"operation {i}: {x[0]}"
        if i == n // 10:
            first = resident()
    grown = resident() - first
    if capi.rank() == 0:
        print(f"soak: {time.monotonic() - began:.0f} s, {n} operations, {grown >> 10} KiB more memory")
    capi.shutdown()
    return grown > TINY_GROWTH_MAX


parser = argparse.ArgumentParser()
parser.add_argument("--seconds", default="60")
parser.add_argument("--seed", default="1")
parser.add_argument("--tiny", type=int)
options = parser.parse_args()
sys.path.insert(0, RANKS)
os.environ.update(CAPI_SECONDS=options.seconds, CAPI_SEED=options.seed, CHECKS_HOSTS="1")
sys.exit(play_tiny(options.tiny) if options.tiny else play_random())
