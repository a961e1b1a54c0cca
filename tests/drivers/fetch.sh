#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fetch.sh: prints a folder with NVIDIA's own driver libraries, a folder for each release in it, made in the
# cache when missing. They come from Debian's non-free packages, which are unpacked, not installed.
# Debian keeps a few releases only; which ones is in `packages`. The mirror is that of this machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${RM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster}
dir=$cache/drivers-$(sha256sum <"$here/packages" | cut -c1-12)
mkdir -p "$cache"
exec 9>"$cache/drivers.lock"
flock 9
if [ ! -e "$dir/.done" ]; then
    echo "ringmaster: fetching NVIDIA's driver libraries for the tests (once; 25 MB, some seconds)" >&2
    # shellcheck disable=SC2016 # apt's own variables
    uri=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' \
        | awk '$2 == "main" && $1 ~ /\/debian\/?$/ { print $1; exit }')
    [ -n "$uri" ] || { echo "fetch.sh: this machine has no Debian mirror (run apt-get update)" >&2; exit 1; }
    rm -rf "$dir"
    mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial" "$dir/deb"
    printf 'Types: deb\nURIs: %s\nSuites: bookworm trixie sid\nComponents: non-free\nSigned-By: %s\n' "$uri" \
        /usr/share/keyrings/debian-archive-keyring.gpg >"$dir/apt/nvidia.sources"
    apt=(-qq -o "Dir::Etc::sourcelist=$dir/apt/nvidia.sources" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::Lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt" -o APT::Sandbox::User=root)
    apt-get "${apt[@]}" update >&2
    while read -r release suite names; do
        case $release in '#'* | '') continue ;; esac
        mkdir -p "$dir/$release"
        for name in $names; do
            if ! (cd "$dir/deb" && apt-get "${apt[@]}" download "$name/$suite" >&2); then
                [ "$suite" = sid ] || exit 1
                break # what only the unstable suite has may go; its test is skipped then
            fi
            dpkg -x "$dir/deb/$name"_*.deb "$dir/deb/$release"
            rm "$dir/deb/$name"_*.deb
        done
        [ ! -d "$dir/deb/$release" ] || find "$dir/deb/$release" -name 'lib*.so.*' -exec cp -P {} "$dir/$release" \;
    done <"$here/packages"
    rm -rf "$dir/deb" "$dir/apt"
    touch "$dir/.done"
fi
echo "$dir"
