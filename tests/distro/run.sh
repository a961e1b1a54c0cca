#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The packages of build/deb and build/rpm: lintian and rpmlint, contents, installation, upgrade and removal, and the
# plugin against the headers of other Slurm releases. TAP. Needs root (make test-distro).
# shellcheck disable=SC2001 # quotes as meant, sed for lines, names of packages are words
set -uo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
BUILD=$(cd "$ROOT" && realpath -m "${BUILD:-build}")
DEB=$BUILD/deb RPM=$BUILD/rpm WORK=$BUILD/distro
# shellcheck source=tests/distro/tap.sh
. "$HERE/tap.sh"
nested() { # NAME COMMAND...: its TAP, indented, is one test
    local name=$1
    shift
    "$@" | sed 's/^/    /'
    is "$name" 0 "${PIPESTATUS[0]}"
}
rm -rf "$WORK"
mkdir -p "$WORK"

is 'lintian finds nothing' '' "$(lintian --fail-on none "$DEB"/*.changes 2>&1 | grep -v 'running with root')"
is 'rpmlint finds nothing' '' "$(rpmlint -r "$ROOT/packaging/rpm/rpmlintrc" "$RPM"/*.rpm "$RPM/SPECS/ringmaster.spec" 2>&1 \
    | grep -E '^[^ ]*: (E|W): ')"
names() { sed -E 's/\.gz$//; s,/(python3|licenses|doc)/.*,,; s,lib/x86_64-linux-gnu/slurm-wlm|lib64/slurm,SLURM,' | grep -E '/(bin|man.|completions|_hvd|SLURM|etc/.*)/' | sort -u; }
for p in runtime tools slurm; do
    is "ringmaster-$p: the RPM package has what the Debian package has" '' "$(diff \
        <(dpkg-deb --fsys-tarfile "$DEB"/ringmaster-$p*.deb | tar -t | grep -v '/$' | sed 's,^\.,,' | names) \
        <(rpm -qplv "$RPM"/ringmaster-$p*.rpm | grep -v ^d | awk '{print $9}' | names))"
done

mkdir "$WORK/rpmroot"
rpm --root "$WORK/rpmroot" -i --nodeps --noscripts "$RPM"/*.rpm
is 'the RPM packages install' 3 "$(rpm --root "$WORK/rpmroot" -qa | wc -l)"
# shellcheck disable=SC2046
rpm --root "$WORK/rpmroot" -e --nodeps --noscripts $(rpm --root "$WORK/rpmroot" -qa)
is 'and leave no file behind' '' "$(find "$WORK/rpmroot" -path '*/rpm/*' -prune -o ! -type d -print | grep -v '/var/lib/rpm\|/\.rpm')"

"$HERE/root.sh" bookworm "$WORK/root" libsodium23 || { echo "Bail out! no clean Debian"; exit 1; }
mkdir -p "$WORK/root/debs/next"
cp "$DEB"/*.deb "$WORK/root/debs/"
version=$(dpkg-deb -f "$DEB"/ringmaster-runtime*.deb Version)
next=${version%.*}.$((${version##*.} + 1)) # as long, for the plugin has it inside
for d in "$DEB"/*.deb; do # the same packages as of a later version
    rm -rf "$WORK/repack"
    dpkg-deb -R "$d" "$WORK/repack"
    sed -i "s/^Version: .*/Version: $next/; s/(= $version)/(= $next)/g" "$WORK/repack/DEBIAN/control"
    py=$WORK/repack/usr/lib/ringmaster/python/_hvd/_version.py
    [ ! -e "$py" ] || sed -i "s/'$version'/'$next'/" "$py"
    find "$WORK/repack" -name spank_hvd.so -exec env LC_ALL=C sed -i "s/${version//./\\.}\x00/$next\x00/g" {} +
    dpkg-deb -Znone -b "$WORK/repack" "$WORK/root/debs/next/" >/dev/null
done
nested 'the Debian packages: install, use, upgrade while a step runs, remove' \
    "$HERE/inroot" "$WORK/root" "$HERE/inside.sh" /debs /debs/next
nested 'the plugin compiles against the headers of other Slurm releases' "$HERE/headers.sh"
echo "1..$n"
echo "$((n - failed)) passed, $failed failed"
[ "$failed" -eq 0 ]
