#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cppcheck: warnings and portability. Its own suppressions are written beside the code, with the reason.
. "$(dirname "$0")/lib.sh"
need cppcheck
mapfile -t sources < <(files 'runtime/*.c' 'operator/*.c' 'spank_plugin/*.c')
[ ${#sources[@]} -gt 0 ] || skip "no C sources"
mkdir -p "$BUILD/lint/cppcheck"
# No system headers are read, on purpose (they cost minutes), so macros are unknown; legacyUninitvar does not
# understand statement expressions (err_set) and missingReturn not Python's macros: the compilers check both.
out=$(cppcheck --std=c11 --enable=warning,portability --inline-suppr --quiet -j2 -I. -Iruntime/include -D_GNU_SOURCE \
    -D__linux__ -D__x86_64__ --suppress=missingInclude --suppress=missingIncludeSystem --suppress=unknownMacro \
    --suppress=legacyUninitvar --suppress=missingReturn \
    --cppcheck-build-dir="$BUILD/lint/cppcheck" --template='{file}:{line}: {message} [{id}]' "${sources[@]}" 2>&1) || true
while IFS= read -r line; do if [ -n "$line" ]; then finding "$line"; fi; done <<<"$out"
finish
