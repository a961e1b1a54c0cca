#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bring-up.sh: builds everything from a clone and starts a cluster with the operator, as it is shipped. What exists
# already is kept. `make demo` and the end-to-end tests use it. Each step prints what it does, and how long it may
# take if that is long.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../cluster/lib.sh
. "$(dirname "$0")/../cluster/lib.sh"
need_root
need_machine
cd "$REPO"
: "${BUILD:=build}"
export BUILD

say "1/5 Debian packages"
tests/setup/deb.sh build cluster
say "2/5 building Ringmaster and its two images (first time: 1 to 3 minutes)"
with_progress "make images" make --no-print-directory -j2 images
say "3/5 training image: Debian's Python, PyTorch and scikit-learn"
train=$(tests/cluster/images/train-torch.sh)
say "4/5 Kubernetes: control plane and two nodes"
tests/cluster/up "$train" "$BUILD/images/hvd-operator.tar" "$BUILD/images/hvd-runtime.tar"
say "5/5 installing the operator: kubectl apply -k manifests"
kubectl apply -k manifests >/dev/null
# A pod that runs an older build of the same tag is replaced.
restart=0
built=$(sha256sum "$BUILD"/images/hvd-{operator,runtime}.tar | sha256sum | cut -c1-16)
if [ -e "$RM_RUN/operator-built" ] && [ "$(cat "$RM_RUN/operator-built")" != "$built" ]; then restart=1; fi
read -r namespace name < <(kubectl get deployments -A -l app.kubernetes.io/name=hvd-operator \
    -o 'jsonpath={.items[0].metadata.namespace} {.items[0].metadata.name}{"\n"}')
[ $restart = 0 ] || kubectl -n "$namespace" rollout restart "deployment/$name" >/dev/null
kubectl -n "$namespace" rollout status "deployment/$name" --timeout=240s >&2 || {
    kubectl -n "$namespace" describe pods >&2
    kubectl -n "$namespace" logs "deployment/$name" --tail 20 >&2 || true
    die "the operator did not become ready; its pods and log are above"
}
echo "$built" >"$RM_RUN/operator-built"
