#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [TEST...]: what is installed, and what people write, against a real API server (no nodes), in TAP:
# kustomize and Helm, the definitions of both kinds, the examples, and sentences for bad YAML. Needs BIN, the folder of
# hvd-operator; the cluster at RM_RUN is this suite's own and is taken down afterwards unless KEEP=1.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export RM_RUN=${RM_RUN:-/tmp/ringmaster-packaging}
: "${BIN:?the folder of hvd-operator}"
export BIN
"$root/tests/setup/deb.sh" cluster alerts
[ "${KEEP:-0}" = 1 ] || trap '"$root/tests/cluster/down" >&2' EXIT
HELM=$("$root/tests/cluster/build/helm.sh")
PEER=$("$root/tests/operator/peer.sh" --source)
export HELM PEER
"$root/tests/cluster/up" --control-plane-only >&2
PYTHONPATH=$root/tests/operator:$root/tests /usr/bin/python3 "$root/tests/packaging/packaging_test.py" "$@"
