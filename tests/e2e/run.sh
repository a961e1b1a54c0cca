#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [--keep] [--mpi|--hang|--elastic] [TEST...]: the end-to-end tests, in TAP, on a cluster of their own that is
# taken down afterwards (--keep leaves it for a look around, at RM_RUN); --mpi: those of MPIJobs; --hang: those
# of ranks that hang; --elastic: those of elastic jobs.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
keep=0 tests=e2e
[ "${1:-}" != --keep ] || { keep=1; shift; }
case ${1:-} in --mpi | --hang | --elastic) tests=${1#--}; shift ;; esac
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
if [ "$tests" = hang ]; then
    make -C "$root" --no-print-directory -s "$BUILD/plain/bin/hang-loop.so" >&2
elif [ "$tests" = mpi ]; then
    mapfile -t images < <("$root/tests/cluster/images/mpi.sh")
    "$root/tests/cluster/load" "${images[@]}"
    "$RM_RUN/bin/kubectl" --kubeconfig "$RM_RUN/admin.kubeconfig" apply -k "$root/manifests/crd/mpijob" >&2
fi
"$root/tests/e2e/$tests.py" "$@"
