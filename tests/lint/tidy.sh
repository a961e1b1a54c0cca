#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh FILE.c STAMP [FLAGS...]: runs clang-tidy on one file with its compile flags and writes the findings to
# STAMP. make calls it when the file or one of its headers has changed. RM_CACHE remembers clean files for other
# clones, under two hashes: one of the preprocessed file, and one of the file, our headers that it included last
# time (deps-FILE) and TIDY_SEEN. The second avoids preprocessing, which takes longer than everything else.
# tidy.sh --seen [FLAGS...]: prints TIDY_SEEN, a hash of clang-tidy, its settings and the installed packages.
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
