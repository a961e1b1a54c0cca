#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [TEST...]: hvd-operator against a real etcd, API server and controller manager (no nodes),
# in TAP. Needs BIN, the folder of hvd-operator; the cluster at RM_RUN is
# this suite's own and is taken down afterwards unless KEEP=1.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export RM_RUN=${RM_RUN:-/tmp/ringmaster-operator}
: "${BIN:?the folder of hvd-operator}"
export BIN
[ "${KEEP:-0}" = 1 ] || trap '"$root/tests/cluster/down" >&2' EXIT
"$root/tests/cluster/up" --control-plane-only >&2
/usr/bin/python3 "$root/tests/operator/real_test.py" "$@"
