#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-format decides layout (.clang-format); also: SPDX line on top, no tab, no blank at a line's end.
. "$(dirname "$0")/lib.sh"
need clang-format
mapfile -t sources < <(files '*.c' '*.h')
if [ ${#sources[@]} -gt 0 ]; then
    for f in "${sources[@]}"; do
        clang-format --dry-run -Werror "$f" >/dev/null 2>&1 || finding "$f: clang-format -i $f changes it"
    done
fi
while IFS= read -r f; do
    head -3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || finding "$f: no SPDX line on top"
done < <(files '*.c' '*.h' '*.sh' '*.py' | grep -v '/testdata/')
while IFS= read -r line; do finding "$line: blank at the end of the line"; done \
    < <(files '*.c' '*.h' '*.sh' '*.py' '*.mk' '*.md' | xargs -r -d '\n' grep -nE '[ 	]+$' /dev/null | cut -d: -f1,2)
while IFS= read -r line; do finding "$line: tab"; done \
    < <(files '*.c' '*.h' '*.sh' '*.py' | xargs -r -d '\n' grep -nP '^ *\t' /dev/null | cut -d: -f1,2)
finish
