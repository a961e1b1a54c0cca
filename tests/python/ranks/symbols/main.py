# SPDX-License-Identifier: Apache-2.0
"""Runs all cases of this folder on the ranks of a job; each rank writes $CHECKS_DIR/RANK.json:

cases    {name: {"symbols": [...], "said": {...}, "error": text or null, "seconds": number}}
here     of rank 0: what is here under the names that the original has (record_horovod.py)
extra    of rank 0: what horovod.torch has besides
"""

import importlib
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../..")

import record_horovod
from core import OURS, RANK, run_all
from harness import Case, torch

# In this order on all ranks. helpers.py comes before init(), which place.py calls: the original forks
# there, and MPI does not bear that later.
FILES = ("helpers", "place", "reduce", "gather", "sets", "objects", "optimizers", "training", "last")

torch.set_num_threads(1)


def main():
    for name in FILES:
        importlib.import_module(name)
    report = {"torch": torch.__version__, "cases": {}}
    if OURS and RANK == 0:
        wanted = json.loads(record_horovod.RECORD.read_text())
        report["here"] = record_horovod.compare_to(wanted)
        beside = record_horovod.names_beside(wanted, "horovod.torch")
        report["extra"] = {f"horovod.torch.{name}": other for name, other in beside.items()}
    sys.exit(run_all(Case, record_horovod.RESULTS, report))


if __name__ == "__main__":
    main()
