#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-format decides layout (.clang-format); also: SPDX line on top, no tab, no blank at a line's end.
# RM_CACHE remembers files whose layout was clean, under a hash of what clang-format reads.
. "$(dirname "$0")/lib.sh"
need clang-format
mapfile -t sources < <(files '*.c' '*.h' '*.cu')
if [ ${#sources[@]} -gt 0 ]; then
    read -r how _ < <( (clang-format --version; cat .clang-format 2>/dev/null) | sha256sum)
    declare -A names=() # of files that are not known to be clean
    known=()
    while read -r hash f; do
        name=${how:0:16}-$hash.${f##*.}
        if was_clean format "$name"; then known+=("$name"); else names[$f]=$name; fi
    done < <(sha256sum -- "${sources[@]}")
    if [ ${#names[@]} -gt 0 ]; then
        if out=$(printf '%s\0' "${!names[@]}" | xargs -0 -P2 -n 40 clang-format --dry-run -Werror 2>&1); then
            known+=("${names[@]}")
        fi
        while IFS= read -r f; do finding "$f: clang-format -i $f changes it"; done \
            < <(sed -nE 's/^([^:]+):[0-9]+:[0-9]+: error:.*/\1/p' <<<"$out" | sort -u)
    fi
    is_clean format "${known[@]}"
fi
# an empty file has no record, so END compares the arguments
while IFS= read -r f; do finding "$f: no SPDX line on top"; done < <(
    files '*.c' '*.h' '*.cu' '*.sh' '*.py' '*.js' '*.css' '*.html' | grep -v '/testdata/' | tr '\n' '\0' | xargs -0 awk '
        FNR <= 3 && /SPDX-License-Identifier: Apache-2.0/ { has[FILENAME] = 1 }
        FNR > 3 { nextfile }
        END { for (i = 1; i < ARGC; i++) if (!(ARGV[i] in has)) print ARGV[i] }'
)
while IFS= read -r line; do finding "$line: blank at the end of the line"; done \
    < <(files '*.c' '*.h' '*.cu' '*.sh' '*.py' '*.mk' '*.md' '*.js' '*.css' '*.html' | xargs -r -d '\n' grep -nE '[ 	]+$' /dev/null | cut -d: -f1,2)
while IFS= read -r line; do finding "$line: tab"; done \
    < <(files '*.c' '*.h' '*.cu' '*.sh' '*.py' '*.js' '*.css' '*.html' | xargs -r -d '\n' grep -nP '^ *\t' /dev/null | cut -d: -f1,2)
finish
