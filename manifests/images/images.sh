#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# images.sh OPERATOR STAGE OUTDIR [NCCL]: builds the two images that Ringmaster ships, as OCI archives
# OUTDIR/hvd-operator.tar (localhost/hvd-operator:dev) and OUTDIR/hvd-runtime.tar
# (localhost/hvd-runtime:dev). `make images` calls it. With NCCL, a virtual environment that has the package
# nvidia-nccl-cu12, also OUTDIR/hvd-runtime-nccl.tar: the runtime with that library, which ranks open when
# neither the framework nor the system has one.
#
# Each has a bill of materials, FILE.spdx.json.
#
# The operator's image has only the program, its shared libraries and the CA
# certificates, and no shell. The runtime's image is the installed tree under
# /opt/ringmaster; its only program that runs there is the static hvd-agent. Both run as an
# ordinary user. The same inputs give the same bytes; IMAGE_TAG and IMAGE_PREFIX change the names.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 3 ] || [ $# -eq 4 ] || { echo "usage: images.sh OPERATOR STAGE OUTDIR [NCCL]" >&2; exit 2; }
operator=$1 stage=$2 out=$3 nccl=${4:-}
prefix=${IMAGE_PREFIX:-localhost} tag=${IMAGE_TAG:-dev}
user=65532:65532
ca=/etc/ssl/certs/ca-certificates.crt

die() { echo "images: $*" >&2; exit 1; }
[ -x "$operator" ] || die "no operator at $operator (make all builds it)"
[ -x "$stage/bin/hvd-agent" ] || die "no agent at $stage/bin/hvd-agent (make stage builds it)"
[ -r $ca ] || die "no CA certificates at $ca: apt-get install ca-certificates"
if readelf -l "$stage/bin/hvd-agent" | grep -q INTERP; then
    die "$stage/bin/hvd-agent is linked dynamically: it must run in any image"
fi

mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "ringmaster:x:65532:65532:Ringmaster:/:/usr/sbin/nologin" >"$work/passwd"
echo "ringmaster:x:65532:" >"$work/group"
echo "hosts: files dns" >"$work/nsswitch.conf"

# Each library goes where the dynamic linker looked for it on this machine.
libraries=()
while read -r path; do libraries+=(--file "$path=$path"); done < <(
    ldd "$operator" | grep -oE '(^|[[:space:]])/[^ ]+' | tr -d '[:blank:]' | sort -u)
version=$("$operator" --version | awk '{print $2}')
labels=(--label "org.opencontainers.image.version=$version" --label org.opencontainers.image.licenses=Apache-2.0)
[ ${#libraries[@]} -gt 0 ] || die "ldd found no library of $operator"

"$here/oci.py" "$out/hvd-operator.tar" "$prefix/hvd-operator:$tag" \
    --file "$operator=/usr/bin/hvd-operator" "${libraries[@]}" --file "$ca=$ca" \
    --file "$work/passwd=/etc/passwd" --file "$work/group=/etc/group" \
    --file "$work/nsswitch.conf=/etc/nsswitch.conf" --dir /tmp:1777 \
    --user $user --entrypoint /usr/bin/hvd-operator "${labels[@]}" --label org.opencontainers.image.title=hvd-operator
runtime_image() { # NAME LICENCES [OPTION...]
    local name=$1 licences=$2
    shift 2
    "$here/oci.py" "$out/$name.tar" "$prefix/$name:$tag" --tree "$stage=/opt/ringmaster" "$@" \
        --file "$work/passwd=/etc/passwd" --file "$work/group=/etc/group" \
        --user $user --entrypoint /opt/ringmaster/bin/hvd-agent --label "org.opencontainers.image.version=$version" \
        --label "org.opencontainers.image.licenses=$licences" --label "org.opencontainers.image.title=$name"
}
tell() { # NAME [PATH=PACKAGE@VERSION]
    "$here/sbom.py" "$out/$1.tar" "$version" "$out/$1.spdx.json" "${@:2}"
    echo "$out/$1.tar: $prefix/$1:$tag, $(($(stat -c %s "$out/$1.tar") / 1024)) KiB"
}
runtime_image hvd-runtime Apache-2.0
tell hvd-operator
tell hvd-runtime
[ -n "$nccl" ] || exit 0

# One copy: python/_hvd/libhvd_cuda.so looks beside itself too.
site=$(echo "$nccl"/lib/python*/site-packages)
info=$(echo "$site"/nvidia_nccl_cu12-*.dist-info)
library=$site/nvidia/nccl/lib/libnccl.so.2
licence=$(find "$info" -iname 'licen[cs]e*.txt' | head -1)
[ -f "$library" ] || die "no libnccl.so.2 in $nccl"
[ -n "$licence" ] || die "the package in $nccl has no licence text: it must not be passed on without"
of=${info##*/nvidia_nccl_cu12-}
runtime_image hvd-runtime-nccl "Apache-2.0 AND LicenseRef-NCCL" \
    --file "$library=/opt/ringmaster/lib/nccl/libnccl.so.2" \
    --file "$licence=/opt/ringmaster/lib/nccl/LICENSE.txt" \
    --link "../../lib/nccl=/opt/ringmaster/python/_hvd/nccl"
tell hvd-runtime-nccl "opt/ringmaster/lib/nccl/=nvidia-nccl-cu12@${of%.dist-info}"
