#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# upstream.sh [--peer] [TEST-PATTERN]: mpi-operator's own integration tests against hvd-operator, in TAP.
# They come from the Go module proxy (peer.sh) and are run as they are, but for the function that starts the
# controller: upstream/start_test.go starts our program. etcd and API server are those of tests/cluster; nothing
# plays kubelet or Job controller but the tests. --peer: against mpi-operator's program, to see that this
# arrangement is right. Needs BIN, the folder of hvd-operator.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
: "${BIN:?the folder of hvd-operator}"
BIN=$(realpath "$BIN")
source=--source
[ "${1:-}" != --peer ] || source=
peer=$("$root/tests/operator/peer.sh" $source)
kube=$("$root/tests/cluster/build/build.sh")
go=$("$root/tests/setup/go.sh" 26)
WORK=$(mktemp -d "${TMPDIR:-/tmp}/ringmaster-upstream.XXXXXX")
export WORK
# etcd and API server are children of the test program, which ends them; the folder stays after a failure.
trap 'if [ "${failed:-1}" = 1 ]; then echo "# log: $WORK/operator.log"; else rm -rf "$WORK"; fi' EXIT
cp -r "$peer/src" "$WORK/src"
tests=$WORK/src/test/integration
grep -q '^func startController($' "$tests/mpi_job_controller_test.go" ||
    { echo "upstream: startController() is not where it was" >&2; exit 1; }
sed -i 's/^func startController($/func theirStartController(/' "$tests/mpi_job_controller_test.go"
cp "$root/tests/operator/upstream/start_test.go" "$tests/"
cp "$root/tests/operator/upstream/podgroup.yaml" "$WORK/src/dep-crds/volcano-scheduler/"
mkdir "$WORK/assets"
ln -s "$kube"/{etcd,kube-apiserver,kubectl} "$WORK/assets/"
export KUBEBUILDER_ASSETS=$WORK/assets
k=$WORK/assets/kubectl
m=$root/manifests
if [ -z "$source" ]; then
    shift
    export OPERATOR="$peer/mpi-operator --lock-namespace default --kube-api-qps 1000 --kube-api-burst 1000 --kubeConfig"
    # v0.8.2's own role lacks jobs/status, without which a job cannot be resumed.
    export SETUP="$k create serviceaccount op; $k create clusterrolebinding op --clusterrole cluster-admin --serviceaccount default:op; $k create token op"
else
    export OPERATOR="$BIN/hvd-operator --http-port 0 --log-level debug ${OPERATOR_OPTIONS:-} --kubeconfig"
    export SETUP="$k apply -f $m/operator/namespace.yaml && $k apply -k $m/crd && $k apply -k $m/rbac &&
        $k apply -f $m/overlays/gang/clusterrole.yaml -f $m/overlays/gang/clusterrolebinding.yaml &&
        $k wait --for=condition=Established --timeout=30s crd/horovodjobs.ringmaster.dev &&
        $k create token hvd-operator -n ringmaster"
fi
export CGO_ENABLED=0 GOTOOLCHAIN=local
(cd "$WORK/src" && "$go" test -trimpath -count=1 -timeout 9m -v ${1:+-run "$1"} ./test/integration/ 2>&1) |
    tee "$WORK/go.log" | "$root/tests/operator/upstream/tap.py" && failed=0
[ "${failed:-1}" = 0 ]
