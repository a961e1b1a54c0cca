#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-format decides layout (.clang-format); also: SPDX line on top, no tab, no blank at a line's end.
. "$(dirname "$0")/lib.sh"
need clang-format
mapfile -t sources < <(files '*.c' '*.h' '*.cu')
if [ ${#sources[@]} -gt 0 ]; then
    while IFS= read -r f; do finding "$f: clang-format -i $f changes it"; done < <(printf '%s\0' "${sources[@]}" \
        | xargs -0 -P2 -n 40 clang-format --dry-run -Werror 2>&1 | sed -nE 's/^([^:]+):[0-9]+:[0-9]+: error:.*/\1/p' | sort -u)
fi
while IFS= read -r f; do
    head -3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || finding "$f: no SPDX line on top"
done < <(files '*.c' '*.h' '*.cu' '*.sh' '*.py' | grep -v '/testdata/')
while IFS= read -r line; do finding "$line: blank at the end of the line"; done \
    < <(files '*.c' '*.h' '*.cu' '*.sh' '*.py' '*.mk' '*.md' | xargs -r -d '\n' grep -nE '[ 	]+$' /dev/null | cut -d: -f1,2)
while IFS= read -r line; do finding "$line: tab"; done \
    < <(files '*.c' '*.h' '*.cu' '*.sh' '*.py' | xargs -r -d '\n' grep -nP '^ *\t' /dev/null | cut -d: -f1,2)
finish
