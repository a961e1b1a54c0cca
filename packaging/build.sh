#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh deb|rpm OUT VERSION [KERNELS.BIN]: builds the packages of the tracked files, and of new ones that git does
# not ignore, in OUT. They are compiled in a copy, against the Slurm headers of this machine, without network.
# KERNELS.BIN: the compiled CUDA kernels, which a tree without network cannot make.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
kind=$1 out=$(realpath -m "$2") version=$3 kernels=${4:-}
# 0x160508 is 22.05.8. Debian's headers are in a package of that release.
number=$(sed -n 's/^#define SLURM_VERSION_NUMBER 0x\([0-9a-f]*\)$/\1/p' /usr/include/slurm/slurm_version.h)
[ ${#number} = 6 ] || { echo "build.sh: no Slurm headers; run tests/setup/deb.sh slurm" >&2; exit 1; }
slurm=$(printf '%d.%02d' "0x${number:0:2}" "0x${number:2:2}")
slurm_next=$(printf '%d.%02d' "0x${number:0:2}" $((0x${number:2:2} + 1)))
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH
# who distributes the packages, as Debian's tools name them; without it an address that nobody can have (RFC 2606)
maintainer="${DEBFULLNAME:-Ringmaster maintainers} <${DEBEMAIL:-maintainers@ringmaster.invalid}>"
fill() { # FILE.in: with this build's values
    sed "s/@VERSION@/$version/g; s/@SLURM@/$slurm/g; s/@SLURM_NEXT@/$slurm_next/g; s|@MAINTAINER@|$maintainer|
        s/@DATE@/$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")/g" "$1"
}

name=ringmaster-$version
rm -rf "$out"
mkdir -p "$out/$name"
(cd "$root" && git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'ls -d "$@" 2>/dev/null' x \
    | tar -c -T - | tar -x -C "$out/$name")
sed -i "s/^VERSION := .*/VERSION := $version/" "$out/$name/Makefile"
if [ -n "$kernels" ]; then install -D -m 644 "$kernels" "$out/$name/build/kernels/kernels.bin"; fi
# the build's own variables would otherwise override those of the copy
unset BUILD MAKEFLAGS MFLAGS MAKELEVEL V O

case $kind in
    deb)
        cp -r "$root/packaging/debian" "$out/$name/debian"
        cd "$out/$name/debian"
        for f in control changelog; do fill $f.in >$f && rm $f.in; done
        for f in ringmaster-slurm.*; do mv "$f" "ringmaster-slurm-$slurm.${f##*.}"; done
        cd ..
        dpkg-buildpackage -b -us -uc -j2
        ;;
    rpm)
        mkdir -p "$out"/{SOURCES,SPECS}
        tar -C "$out" --sort=name --owner=0 --group=0 -czf "$out/SOURCES/$name.tar.gz" "$name"
        fill "$root/packaging/rpm/ringmaster.spec.in" >"$out/SPECS/ringmaster.spec"
        rpmbuild -bb --nodeps --define "_topdir $out" --define "werror -Werror" "$out/SPECS/ringmaster.spec"
        mv "$out"/RPMS/*/*.rpm "$out"
        ;;
    *)
        echo "build.sh: \"$kind\" is not deb or rpm" >&2
        exit 2
        ;;
esac
