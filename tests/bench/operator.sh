#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# operator.sh BIN [OPTION...]: measures hvd-operator on its own control plane with simulated nodes; method and
# options are in bench_operator.py, with --viewers N in bench_page.py. --peer measures mpi-operator too. Needs root;
# removes the cluster afterwards unless KEEP=1.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export RM_RUN=${RM_RUN:-/tmp/ringmaster-bench}
bin=$(realpath "${1:?the folder of hvd-operator}")
shift
peer=()
program=bench_operator.py
for o in "$@"; do
    [ "$o" != --viewers ] || program=bench_page.py
    [ "$o" != --peer ] || peer=(--peer-folder "$("$root/tests/operator/peer.sh")")
done
[ "${KEEP:-0}" = 1 ] || trap '"$root/tests/cluster/down" >&2' EXIT
"$root/tests/cluster/up" --control-plane-only >&2
# shellcheck source=tests/cluster/lib.sh
netns=$(. "$root/tests/cluster/lib.sh" && echo "$ID")
# Runs in the network namespace of the control plane, without a forwarder between operator and API server.
nsenter "--net=/run/netns/$netns" python3 "$root/tests/bench/$program" "$bin/hvd-operator" \
    "${peer[@]}" "$@"
