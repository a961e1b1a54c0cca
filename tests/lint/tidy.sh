#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh FILE.c STAMP [FLAGS...]: clang-tidy of one file with its compile flags; called by make, which
# repeats it only when the file or a header of it has changed. Findings go to STAMP. That a file was clean is
# remembered in RM_CACHE for other clones, under a hash of all that clang-tidy sees; and, as preprocessing
# costs more than all the rest, under one of the file, the headers of ours that it had when it was looked at last
# (deps-FILE), and TIDY_SEEN: with the same content they include the same.
# tidy.sh --seen [FLAGS...]: what TIDY_SEEN is to be; it stands for clang-tidy and the headers of others.
set -uo pipefail
if [ "$1" = --seen ]; then
    shift
    read -r seen _ < <( (clang-tidy --version; cat .clang-tidy; echo "$*"; dpkg-query -W 2>/dev/null) | sha256sum)
    echo "$seen"
    exit
fi
file=$1 stamp=$2
shift 2
d=${stamp%.tidy}.d clean='' deps='' hash=''
mkdir -p "${stamp%/*}"
if [ -n "${RM_CACHE:-}" ]; then mkdir -p "${clean:=$RM_CACHE/tidy}"; fi
if [ -n "${TIDY_SEEN:-}" ]; then deps=${clean:+$clean/deps-${file//\//,}}; fi
quick() { # FILE and its HEADERS... -> hash
    read -r hash _ < <( (echo "$TIDY_SEEN"; sha256sum -- "$@" 2>&1) | sha256sum)
}
if [ -n "$deps" ] && [ -f "$deps" ]; then
    mapfile -t headers <"$deps"
    quick "$file" "${headers[@]}"
    if [ -e "$clean/$hash" ]; then
        { echo "$stamp: $file ${headers[*]}"; printf '%s:\n' "${headers[@]}"; } >"$d"
        touch "$clean/$hash" "$deps"
        : >"$stamp"
        exit 0
    fi
fi
rm -f "$d"
read -r seen _ < <( (
    echo "${TIDY_VERSION:-$(clang-tidy --version)}"
    cat .clang-tidy
    echo "$*"
    gcc -E -C -dD -MMD -MP -MT "$stamp" -MF "$d" "$@" "$file" 2>&1
) | sha256sum)
is_clean() {
    [ -n "$clean" ] || return 0
    if [ -n "$deps" ] && [ -f "$d" ]; then
        sed -n 's/^\([^ ]*\.h\):$/\1/p' "$d" >"$deps.$$" && mv "$deps.$$" "$deps"
        mapfile -t headers <"$deps"
        quick "$file" "${headers[@]}"
        touch "$clean/$hash"
    fi
    touch "$clean/$seen"
}
if [ -n "$clean" ] && [ -e "$clean/$seen" ]; then is_clean; : >"$stamp"; exit 0; fi
out=$(clang-tidy --quiet "$file" -- "$@" 2>&1)
rc=$?
if [ $rc -ne 0 ]; then
    grep -E '(warning|error):' <<<"$out" | sed "s,^$PWD/,," | sort -u >"$stamp"
    [ -s "$stamp" ] || { echo "$file: clang-tidy ended with $rc: ${out:0:300}" >"$stamp"; }
else
    : >"$stamp"
    is_clean
fi
