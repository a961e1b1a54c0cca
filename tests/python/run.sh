#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [NAME...]: the Python suite, TAP on stdout. NAME is a test_NAME.py of this folder; none: all.
# Tests the staged tree and the wheel, as they go into images, with Debian's PyTorch and PyPI's newest
# TensorFlow. `run.sh --full` runs the same with the newest PyTorch and an older TensorFlow.
set -euo pipefail
cd "$(dirname "$0")/../.."
export BUILD=${BUILD:-build}
tests/setup/deb.sh build torch mpi >&2
make --no-print-directory stage wheel >&2
if [ "${1:-}" = --full ]; then
    shift
    exec /usr/bin/python3 tests/python/tap.py "${@:-full}"
fi
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for f in tests/python/test_*.py; do
        name=${f##*/test_}; name=${name%.py}
        [ "$name" = full ] || names+=("$name")
    done
fi
exec /usr/bin/python3 tests/python/tap.py "${names[@]}"
