#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""horovodrun compared with Horovod's own, if that is installed (tests/setup/horovod.sh, with "tf" or without). TAP.

usage: peer_test.py [PART OF A NAME ...]
"""

import json
import os
import re
import subprocess

from launched import run, variables
from tap import Skip, main, same, write

CACHE = os.environ.get("RM_CACHE") or os.path.expanduser("~/.cache/ringmaster")
PEERS = [os.path.join(CACHE, "venv", name, "bin") for name in ("horovod", "horovodtf")]

# Run by Horovod's Python: its spellings, and the ranks' variables for each command line of argv[1].
ASK = """
import argparse, json, sys, warnings
warnings.simplefilter("ignore")
from horovod.runner import launch
from horovod.runner.common.util import config_parser
lines, told = json.loads(sys.argv[1]), []
for words in lines:
    sys.argv = ["horovodrun", "-np", "1", *words, "env"]
    told.append({})
    config_parser.set_env_from_args(told[-1], launch.parse_args())
def stop(parser, *_, **__):
    print(json.dumps([sorted(o for a in parser._actions for o in a.option_strings), told]))
    sys.exit()
argparse.ArgumentParser.parse_args = stop
launch.parse_args()
"""

CONFIG = """params: {fusion_threshold_mb: 32, cycle_time_ms: 10.5, cache_capacity: 2048, hierarchical_allreduce: True}
autotune: {enabled: True, log_file: "log", warmup_samples: 5, steps_per_sample: 20}
timeline: {filename: "timeline.json", mark_cycles: True}
stall_check: {enabled: False, warning_time_seconds: 120, shutdown_time_seconds: 240}
library_options: {mpi_threads_disable: True, num_nccl_streams: 2, thread_affinity: 1, gloo_timeout_seconds: 60}
logging: {level: INFO, with_timestamp: True}
controller: gloo
"""

LINES = [
    line.split()
    for line in """
--fusion-threshold-mb 10
--cycle-time-ms 0.5 --cache-capacity 512
--hierarchical-allreduce --no-hierarchical-allgather --torus-allreduce
--no-hierarchical-allreduce --hierarchical-allgather --no-torus-allreduce
--autotune --autotune-log-file f --autotune-warmup-samples 5 --autotune-steps-per-sample 20
--autotune --autotune-bayes-opt-max-samples 50 --autotune-gaussian-process-noise 0.2
--autotune-warmup-samples 5
--timeline-filename t.json --timeline-mark-cycles
--timeline-filename t.json --no-timeline-mark-cycles
--timeline-mark-cycles
--no-stall-check --stall-check-warning-time-seconds 10 --stall-check-shutdown-time-seconds 20
--stall-check
--mpi-threads-disable --num-nccl-streams 2 --thread-affinity 1 --gloo-timeout-seconds 60 --tcp
--no-mpi-threads-disable
--log-level INFO --log-without-timestamp
--log-level FATAL --log-with-timestamp
--log-hide-timestamp
--no-log-hide-timestamp
--verb --disable --start-time 9 --gloo
--config-file config.yaml
--config-file config.yaml --no-hierarchical-allreduce --cache-capacity 7
""".splitlines()
    if line
]


def ask(lines):
    peer = next((p for p in PEERS if os.path.exists(f"{p}/horovodrun")), None)
    if not peer:
        raise Skip("the original Horovod is not here: it is built for make conformance and make bench")
    out = subprocess.run(
        [f"{peer}/python", "-c", ASK, json.dumps(lines)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


def test_flags_mean_what_they_mean_to_horovod(folder):
    config = os.path.join(folder, "config.yaml")
    write(config, CONFIG)
    lines = [[config if w == "config.yaml" else w for w in words] for words in LINES]
    _, told = ask(lines)
    bare = variables(folder)
    for words, theirs in zip(lines, told):
        ours = variables(folder, *words)
        ours = {k: v for k, v in ours.items() if k.startswith(("HOROVOD_", "NCCL_")) and bare.get(k) != v}
        ours.pop("HOROVOD_START_TIMEOUT", None)  # Horovod's ranks do not get it
        same(ours, theirs, " ".join(words))


def test_no_flag_of_horovods_is_missing(folder):
    theirs, _ = ask([])
    ours = set(re.findall(r"(?:^  |, )(-[a-zA-Z-]+)", run(folder, "--help").out, re.M))
    same(sorted(set(theirs) - ours), [])
    same(
        sorted(ours - set(theirs)),
        [
            "--agent-port",
            "--binding",
            "--framework",
            "--json",
            "--report",
            "--slurm",
            "--spares",
            "--status",
            "--tf-evaluator",
            "--tf-ps",
            "--token-file",
        ],
    )


if __name__ == "__main__":
    main(globals())
