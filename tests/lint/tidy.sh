#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh FILE.c STAMP [FLAGS...]: clang-tidy of one file with its compile flags; called by make, which
# repeats it only when the file or a header of it has changed. Findings go to STAMP. That a file was clean is
# remembered in RM_CACHE for other clones, under a hash of all that clang-tidy sees.
set -uo pipefail
file=$1 stamp=$2
shift 2
mkdir -p "$(dirname "$stamp")"
gcc -MM -MP -MT "$stamp" -MF "${stamp%.tidy}.d" "$@" "$file" 2>/dev/null || rm -f "${stamp%.tidy}.d"
seen=$( (clang-tidy --version; cat .clang-tidy; echo "$*"; gcc -E -C -dD "$@" "$file" 2>&1) | sha256sum)
clean=${RM_CACHE:+$RM_CACHE/tidy/${seen%% *}}
if [ -n "$clean" ] && [ -e "$clean" ]; then touch "$clean"; : >"$stamp"; exit 0; fi
out=$(clang-tidy --quiet "$file" -- "$@" 2>&1)
rc=$?
if [ $rc -ne 0 ]; then
    grep -E '(warning|error):' <<<"$out" | sed "s,^$PWD/,," | sort -u >"$stamp"
    [ -s "$stamp" ] || { echo "$file: clang-tidy ended with $rc: ${out:0:300}" >"$stamp"; }
else
    : >"$stamp"
    if [ -n "$clean" ]; then mkdir -p "${clean%/*}" && : >"$clean"; fi
fi
