#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# operator.sh BIN [OPTION...]: measures hvd-operator on a control plane of its own with fake nodes (operator.py
# says how, and has the options). With --peer mpi-operator goes the same way. Needs root; takes the cluster
# down afterwards unless KEEP=1.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export RM_RUN=${RM_RUN:-/tmp/ringmaster-bench}
bin=$(realpath "${1:?the folder of hvd-operator}")
shift
peer=()
for o in "$@"; do
    [ "$o" != --peer ] || peer=(--peer-folder "$("$root/tests/operator/peer.sh")")
done
[ "${KEEP:-0}" = 1 ] || trap '"$root/tests/cluster/down" >&2' EXIT
"$root/tests/cluster/up" --control-plane-only >&2
# shellcheck source=tests/cluster/lib.sh
netns=$(. "$root/tests/cluster/lib.sh" && echo "$ID")
# In the control plane's network namespace, so that no forwarder stands between operator and API server.
nsenter "--net=/run/netns/$netns" python3 "$root/tests/bench/operator.py" "$bin/hvd-operator" \
    "${peer[@]}" "$@"
