#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [--keep] [TEST...]: the end-to-end tests, in TAP, on a cluster of their own that is
# taken down afterwards (--keep leaves it for a look around, at RM_RUN).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
keep=0
[ "${1:-}" != --keep ] || { keep=1; shift; }
export RM_RUN=${RM_RUN:-/tmp/ringmaster-e2e}
export BUILD=${BUILD:-build}
leave() {
    if [ $keep = 1 ]; then
        echo "# the cluster stays: RM_RUN=$RM_RUN; tests/cluster/down takes it down"
    else
        "$root/tests/cluster/down"
    fi
}
trap leave EXIT
"$root/tests/demo/bring-up.sh"
"$root/tests/e2e/e2e.py" "$@"
