#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train-torch.sh: prints the path of the OCI archive localhost/train-torch:1, made when missing:
# a Debian 12 root with Python and Debian's python3-torch 1.13 and python3-sklearn, as any
# user's training image would be; nothing of Ringmaster is in it.
#
# The archive is in the cache, named by a hash of what this script takes and leaves. What Debian's
# packages bring along and training never opens (compilers, headers, static libraries, test
# suites, LLVM for OpenGL, documentation) is left out.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
RM_CACHE=${RM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster}
lib=/usr/lib/x86_64-linux-gnu
py=usr/lib/python3/dist-packages
packages=python3-torch,python3-sklearn
without=(
    "/usr/share/doc/*" "/usr/share/man/*" "/usr/share/locale/*" "/usr/share/info/*"
    "/usr/share/proj/*" "/usr/share/gdal/*" "/usr/share/icons/*"
    "/usr/include/*" "/usr/lib/*.a" "/usr/lib/gcc/*" "/usr/bin/*lto-dump*" "$lib/perl/*/CORE/*"
    "$lib/libLLVM*" "$lib/dri/*" "$lib/lib[alt]san.so*" "$lib/mfx/*"
    "/$py/torch/include/*"
)
# Python's own files are compiled when they are installed, so these go afterwards.
pruned=("$py/*/tests/*" "$py/sympy/integrals/rubi/*" "$py/torch/bin/test_*"
    "usr/lib/python3.11/test/*")
key=$(printf '%s\n' "$packages" "${without[@]}" "${pruned[@]}" | sha256sum | cut -c1-12)
out=$RM_CACHE/images/train-torch-$key.tar

if [ -e "$out" ]; then
    echo "$out"
    exit 0
fi
# shellcheck source-path=SCRIPTDIR source=../lib.sh
. "$here/../lib.sh"
need_root
"$REPO/tests/setup/deb.sh" cluster
mkdir -p "$RM_CACHE/images"
exec 8>"$RM_CACHE/images/lock"
flock -w 0 8 || { say "another process makes the training image; waiting for it"; flock -w 3600 8; }
if [ ! -e "$out" ]; then
    say "making the training image (once; 2 to 7 minutes, 200 MB of Debian packages)"
    work=$(mktemp -d "$RM_CACHE/images/work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    options=()
    for pattern in "${without[@]}"; do options+=("--dpkgopt=path-exclude=$pattern"); done
    with_progress "training image: packages" mmdebstrap --variant=minbase "${options[@]}" \
        --aptopt='Apt::Install-Recommends "false"' \
        --include="$packages" bookworm "$work/root.tar"
    say "training image: writing the archive"
    "$REPO/manifests/images/oci.py" "$work/image.tar" localhost/train-torch:1 \
        --tar "$work/root.tar" "${pruned[@]/#/--exclude=}"
    mv "$work/image.tar" "$out"
fi
echo "$out"
