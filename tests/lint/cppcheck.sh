#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cppcheck: warnings and portability. A suppression is a comment in the code, with its reason.
. "$(dirname "$0")/lib.sh"
need cppcheck
mapfile -t sources < <(files 'runtime/*.c' 'operator/*.c' 'spank_plugin/*.c')
[ ${#sources[@]} -gt 0 ] || skip "no C sources"
# Its results for unchanged files are shared between clones.
kept=${RM_CACHE:+$RM_CACHE/cppcheck} at=$BUILD/lint/cppcheck
[ -z "${LINT_ROOT:-}" ] || kept=
if [ ! -d "$at" ] && [ -d "$kept" ]; then
    mkdir -p "$BUILD/lint"
    cp -r "$kept" "$at" 2>/dev/null || true # another clone may replace it meanwhile
fi
mkdir -p "$at"
# System headers are not read, because that takes minutes, so macros are unknown. legacyUninitvar does not
# understand statement expressions (err_set), missingReturn does not know Python's macros; the compilers check both.
out=$(cppcheck --std=c11 --enable=warning,portability --inline-suppr --quiet -j2 -I. -Iruntime/include -D_GNU_SOURCE \
    -D__linux__ -D__x86_64__ --suppress=missingInclude --suppress=missingIncludeSystem --suppress=unknownMacro \
    --suppress=legacyUninitvar --suppress=missingReturn \
    --cppcheck-build-dir="$at" --template='{file}:{line}: {message} [{id}]' "${sources[@]}" 2>&1) || true
if [ -n "$kept" ]; then
    { cp -r "$at" "$kept.$$" && rm -rf "$kept" && mv -T "$kept.$$" "$kept"; } 2>/dev/null || rm -rf "$kept.$$"
fi
while IFS= read -r line; do if [ -n "$line" ]; then finding "$line"; fi; done <<<"$out"
finish
