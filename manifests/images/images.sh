#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# images.sh OPERATOR STAGE OUTDIR: makes the two images that Ringmaster ships, as OCI archives
# OUTDIR/hvd-operator.tar (localhost/hvd-operator:dev) and OUTDIR/hvd-runtime.tar
# (localhost/hvd-runtime:dev). `make images` calls it.
#
# Beside each is its bill of materials, FILE.spdx.json.
#
# The operator's image holds the program, the shared libraries that it needs, the CA
# certificates and nothing else: no shell. The runtime's image is the installed tree under
# /opt/ringmaster; its only program that runs there is the static hvd-agent. Both run as an
# ordinary user. The same inputs give the same bytes; IMAGE_TAG and IMAGE_PREFIX change the names.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 3 ] || { echo "usage: images.sh OPERATOR STAGE OUTDIR" >&2; exit 2; }
operator=$1 stage=$2 out=$3
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
"$here/oci.py" "$out/hvd-runtime.tar" "$prefix/hvd-runtime:$tag" \
    --tree "$stage=/opt/ringmaster" \
    --file "$work/passwd=/etc/passwd" --file "$work/group=/etc/group" \
    --user $user --entrypoint /opt/ringmaster/bin/hvd-agent "${labels[@]}" --label org.opencontainers.image.title=hvd-runtime
for image in hvd-operator hvd-runtime; do
    "$here/sbom.py" "$out/$image.tar" "$version" "$out/$image.spdx.json"
    echo "$out/$image.tar: $prefix/$image:$tag, $(($(stat -c %s "$out/$image.tar") / 1024)) KiB"
done
