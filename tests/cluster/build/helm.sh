#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# helm.sh: prints the path of helm, built when missing from the modules of helm/go.mod. The libraries
# of Kubernetes are those of kube-all, so that after build.sh half of it is compiled already.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
RM_CACHE=${RM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster}
MODULES=582b9c6380fbdd076afcad1bd96e27b251721845d70a6fbe248fe53c639497a0
version=$(sed -n 's,^\thelm.sh/helm/v3 \(v[^ ]*\).*,\1,p' "$here/helm/go.mod")
key=$(cat "$here"/{helm.sh,modules.sh,helm/go.mod} | sha256sum | cut -c1-12)
out=$RM_CACHE/helm-$key
if [ -x "$out/helm" ]; then
    echo "$out/helm"
    exit 0
fi
say() { echo "helm: $*" >&2; }
mkdir -p "$RM_CACHE"
exec 8>"$RM_CACHE/helm.lock"
flock -w 0 8 || { say "another build is under way; waiting for it"; flock -w 1800 8; }
if [ ! -x "$out/helm" ]; then
    go=$("$here/../../setup/go.sh" 24)
    export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -mod=mod" GOSUMDB=off GOTOOLCHAIN=local
    work=$(mktemp -d "$RM_CACHE/helm-build.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cp "$here/helm/go.mod" "$work"
    say "building $version (once; 1 to 3 minutes)"
    start=$SECONDS
    # Without these stamps it takes every cluster that it does not ask for v1.20.
    minor=$(sed -n 's,^\tk8s.io/client-go v0\.\([0-9]*\)\..*,\1,p' "$here/helm/go.mod")
    flags="-s -w -X helm.sh/helm/v3/internal/version.version=$version"
    for p in chartutil lint/rules; do
        flags+=" -X helm.sh/helm/v3/pkg/$p.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/$p.k8sVersionMinor=$minor"
    done
    (cd "$work" && "$go" build -trimpath -ldflags "$flags" -o new/helm helm.sh/helm/v3/cmd/helm) >&2
    "$here/modules.sh" "$go" "$work/new/helm" $MODULES
    mv "$work/new" "$out"
    say "built in $((SECONDS - start)) s: $out/helm"
fi
echo "$out/helm"
