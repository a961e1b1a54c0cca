#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [NAME...]: the Python suite, TAP on stdout. NAME is a test_NAME.py of this folder, NAME.CLASS or
# NAME.CLASS.METHOD; none: all.
# Tests the staged tree and the wheel, as they go into images, with Debian's PyTorch, PyPI's newest PyTorch
# and TensorFlow (README.md). `run.sh --full` runs what takes long, `run.sh --torches [NAME...]` the tests of
# PyTorch under those between 1.13 and the newest: tests/setup/venv/torch[0-9]*.txt, or HVD_TEST_TORCHES;
# `run.sh --tensorflow` and `run.sh --but-tensorflow` are the two halves of all.
set -euo pipefail
cd "$(dirname "$0")/../.."
export BUILD=${BUILD:-build}
tests/setup/deb.sh build torch mpi >&2
make --no-print-directory stage wheel fakes gpu-carry >&2
if [ "${1:-}" = --full ]; then
    shift
    if [ -n "${RM_ONLY:-}" ]; then set -- "$RM_ONLY"; fi
    exec /usr/bin/python3 tests/python/tap.py "${@:-full}"
fi
# Those named of TensorFlow or Keras, and what else needs nothing but TensorFlow.
of_tensorflow='tensorflow|keras|compute_service|perseus|tf1'
all=$(find tests/python -name 'test_*.py' ! -name "test_full*.py" | sort)
case "${1:-}" in
--torches)
    shift
    between=$(find tests/setup/venv -name 'torch[0-9]*.txt' -printf '%f\n' | sort)
    export HVD_TEST_TORCHES=${HVD_TEST_TORCHES:-${between//.txt/}}
    all=$(grep -l @each_torch tests/python/test_*.py)
    ;;
--tensorflow)
    shift
    all=$(grep -E "$of_tensorflow" <<<"$all")
    ;;
--but-tensorflow)
    shift
    all=$(grep -vE "$of_tensorflow" <<<"$all")
    ;;
esac
if [ -n "${RM_ONLY:-}" ]; then set -- "$RM_ONLY"; fi # tests/run.py repeats what failed
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for f in $all; do
        name=${f##*/test_}; names+=("${name%.py}")
    done
fi
exec /usr/bin/python3 tests/python/tap.py "${names[@]}"
