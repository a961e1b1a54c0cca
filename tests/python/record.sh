#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# record.sh: records what the original Horovod has (names, signatures) and does (results of the cases in
# ranks/symbols on two ranks, by Open MPI) into horovod-0.28.1.json and horovod-0.28.1-results.json.
# Needed when a case changes. The first run makes the original's environment (tests/setup/horovod.sh).
# record.sh --tensorflow: records names and signatures for TensorFlow and Keras into
# horovod-0.28.1-tensorflow.json, from the original's Python sources under TensorFlow 2.15, unbuilt.
# record.sh --tensorflow-results: records results of ranks/symbols_tf/recorded.py, under TensorFlow 2.12 and
# Open MPI, into horovod-0.28.1-tensorflow-results.json.
set -euo pipefail
cd "$(dirname "$0")"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

if [ "${1:-}" = --tensorflow ]; then
    tf=$(../setup/venv.sh tf215)
    "$tf/bin/python" -m pip install -q --target "$dir/deps" cloudpickle psutil pyyaml
    "$tf/bin/python" -m pip download -q --no-deps --no-build-isolation --no-binary :all: -d "$dir" horovod==0.28.1
    tar xzf "$dir/horovod-0.28.1.tar.gz" -C "$dir"
    CUDA_VISIBLE_DEVICES=-1 TF_CPP_MIN_LOG_LEVEL=3 PYTHONPATH=$dir/horovod-0.28.1:$dir/deps \
        "$tf/bin/python" record_horovod.py --tensorflow
    exit
fi
if [ "${1:-}" = --tensorflow-results ]; then
    venv=$(../setup/horovod.sh tf)
    CHECKS_DIR=$dir SYMBOLS_FILES=recorded OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=-1 timeout 300 \
        mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -np 2 \
        "$venv/bin/python" ranks/symbols_tf/main.py || echo "record.sh: some cases failed" >&2
    "$venv/bin/python" record_horovod.py --tensorflow-results "$dir"
    exit
fi
venv=$(../setup/horovod.sh)
"$venv/bin/python" record_horovod.py --write
OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=-1 HOROVOD_DYNAMIC_PROCESS_SETS=1 HOROVOD_TIMELINE=DYNAMIC CHECKS_DIR=$dir PYTHONPATH='' \
    timeout 100 mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -np 2 \
    "$venv/bin/python" ranks/symbols/main.py || echo "record.sh: some cases failed" >&2
"$venv/bin/python" record_horovod.py --results "$dir"
