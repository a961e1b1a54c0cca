#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nccl_real.sh: what can be known of NVIDIA's NCCL without a GPU, of its oldest and newest wheel and of the one that our
# image has. TAP. The
# wheels are large, so this is a row of `make test-full`.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=${BUILD:-build}/plain/gpu/nccl_real
make --no-print-directory "$program" >&2
status=0
for one in nccl_old:21304 nccl:22809 nccl_new:23203; do
    venv=$(tests/setup/venv.sh "${one%:*}")
    for library in "$venv"/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2; do
        timeout 120 "$program" "$library" "${one#*:}" || status=1
    done
done
exit $status
