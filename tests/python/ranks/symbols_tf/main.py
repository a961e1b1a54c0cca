# SPDX-License-Identifier: Apache-2.0
"""Runs all cases of this folder on the ranks of a job; each rank writes $CHECKS_DIR/RANK.json, as
../symbols/main.py describes it. `extra` has what each module of PACKAGES has besides the original."""

import importlib
import json
import os
import sys

sys.path.insert(1, os.path.dirname(os.path.abspath(__file__)) + "/../symbols")
sys.path.insert(1, os.path.dirname(os.path.abspath(__file__)) + "/../..")

import record_horovod
from core import OURS, RANK, run_all
from harness import Case, hvd, tf

# In this order on all ranks; place.py calls init(), last.py shutdown().
FILES = ("place", "reduce", "recorded", "variables", "gradients", "sessions", "keras_api", "keras_training")
FILES += ("state", "data_service", "last")
PACKAGES = ("horovod.tensorflow", "horovod.tensorflow.keras", "horovod.keras")


def main():
    chosen = os.environ.get("SYMBOLS_FILES", "").split()  # while working on a case
    for name in chosen or FILES:
        importlib.import_module(name)
    report = {"tensorflow": tf.__version__, "cases": {}}
    if RANK == 0 and not chosen:
        wanted = json.loads(record_horovod.TENSORFLOW_RECORD.read_text())
        report["here"] = record_horovod.compare_to(wanted)
        report["extra"] = {}
        for package in PACKAGES:
            beside = record_horovod.names_beside(wanted, package)
            report["extra"].update({f"{package}.{name}": other for name, other in beside.items()})
    failed = run_all(Case, record_horovod.TENSORFLOW_RESULTS, report)
    if not OURS:
        hvd.shutdown()  # MPI counts who leaves without
    sys.stdout.flush()
    # TensorFlow's threads and Keras's may outlive what the test is about
    os._exit(failed)


if __name__ == "__main__":
    main()
