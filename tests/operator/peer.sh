#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peer.sh [--source]: prints a folder of the cache with mpi-operator of one fixed version: src/, its module
# with the custom resources that its tests need, and, without --source, the program mpi-operator, built once
# (2 to 8 minutes). Everything comes through the Go module proxy, its sums compared; nothing of it is committed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
RM_CACHE=${RM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster}
MODULE=github.com/kubeflow/mpi-operator
VERSION=v0.8.2
SUM=h1:7PVtV31iX3LSVW0BqRQ64w/NYNfAgP86Bmua2OEi5lg=
GO_MINOR=26 # the least that its go.mod asks for
out=$RM_CACHE/mpi-operator-$VERSION
say() { echo "mpi-operator: $*" >&2; }

is_whole() { [ -e "$out/src/go.mod" ] && { [ "${1:-}" = --source ] || [ -x "$out/mpi-operator" ]; }; }
if is_whole "$@"; then
    echo "$out"
    exit 0
fi
mkdir -p "$out"
exec 8>"$RM_CACHE/mpi-operator.lock"
flock -w 0 8 || { say "another build is under way; waiting for it"; flock -w 1800 8; }
go=$("$here/../setup/go.sh" $GO_MINOR)
export CGO_ENABLED=0 GOTOOLCHAIN=local
field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\$/\1/p"; }

if [ ! -e "$out/src/go.mod" ]; then
    work=$(mktemp -d "$out/new.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    module=$(cd "$work" && "$go" mod download -json "$MODULE@$VERSION")
    sum=$(field Sum <<<"$module")
    [ "$sum" = "$SUM" ] || { say "$VERSION has the sum $sum, expected $SUM"; exit 1; }
    cp -r "$(field Dir <<<"$module")/." "$work"
    chmod -R u+w "$work"
    # PodGroups of scheduler-plugins, in the version that the module itself asks for. Volcano's are not on
    # the proxy: upstream/podgroup.yaml is ours, put there by upstream.sh.
    version=$(sed -n 's,^\tsigs.k8s.io/scheduler-plugins \(v[^ ]*\).*,\1,p' "$work/go.mod")
    plugins=$(cd "$work" && "$go" mod download -json "sigs.k8s.io/scheduler-plugins@$version" | field Dir)
    mkdir -p "$work"/dep-crds/{scheduler-plugins,volcano-scheduler}
    cp --no-preserve=mode "$plugins/manifests/coscheduling/crd.yaml" "$work/dep-crds/scheduler-plugins"
    mv "$work" "$out/src"
    trap - EXIT
fi
if ! is_whole "$@"; then
    say "building $VERSION (once; some minutes)"
    (cd "$out/src" && "$go" build -trimpath -ldflags "-s -w" -o "$out/mpi-operator.new" ./cmd/mpi-operator >&2)
    mv "$out/mpi-operator.new" "$out/mpi-operator"
fi
echo "$out"
