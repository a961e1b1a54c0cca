#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# differ.sh [--self] [FILE...]: differ.py on a control plane of its own, which is taken down afterwards unless
# KEEP=1. Needs BIN, the folder of hvd-operator, and root.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export RM_RUN=${RM_RUN:-/tmp/ringmaster-differ}
: "${BIN:?the folder of hvd-operator}"
export BIN
peer=$("$root/tests/operator/peer.sh")
[ "${KEEP:-0}" = 1 ] || trap '"$root/tests/cluster/down" >&2' EXIT
"$root/tests/cluster/up" --control-plane-only >&2
# shellcheck source=tests/cluster/lib.sh
read -r NETNS address < <(. "$root/tests/cluster/lib.sh" && echo "$ID" "$CP_IP")
export NETNS
"$root/tests/cluster/pki.sh" kubeconfig admin "https://$address:6443" "$RM_RUN/inside.kubeconfig"
python3 "$root/tests/operator/differ.py" "$peer" "$@"
