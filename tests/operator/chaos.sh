#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chaos.sh [--soak SECONDS [SEED]] [TEST...]: chaos_test.py on a control plane of its own, which is taken down
# afterwards unless KEEP=1. Needs BIN, the folder of hvd-operator and hvd-operator-faults, and root.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export RM_RUN=${RM_RUN:-/tmp/ringmaster-chaos}
: "${BIN:?the folder of hvd-operator and hvd-operator-faults}"
export BIN
[ "${KEEP:-0}" = 1 ] || trap '"$root/tests/cluster/down" >&2' EXIT
"$root/tests/setup/deb.sh" chaos
"$root/tests/cluster/up" --control-plane-only >&2
python3 "$root/tests/operator/chaos_test.py" "$@"
