#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Files of at most 600 lines, functions of at most 80 lines and complexity 20 (pmccabe's first column:
# a switch counts once). Exceptions are in tests/lint/allow; one that is no longer needed is a finding, too.
. "$(dirname "$0")/lib.sh"
need pmccabe
MAX_FILE=600 MAX_FUNCTION=80 MAX_COMPLEXITY=20
over=$(mktemp)
trap 'rm -f "$over"' EXIT

while read -r n f; do
    echo "lines $f" >>"$over"
    allowed lines "$f" || finding "$f: $n lines, at most $MAX_FILE"
done < <(files '*.c' '*.h' '*.py' '*.sh' '*.mk' '*.js' '*.css' Makefile | tr '\n' '\0' | xargs -0 -n 1000 wc -l \
    | awk -v max=$MAX_FILE '$1 > max && $2 != "total"')

mapfile -t sources < <(files '*.c')
if [ ${#sources[@]} -gt 0 ]; then
    while IFS=$'\t' read -r complexity _ _ _ lines where; do
        name=${where##*: }
        file=${where%%(*}
        [ "$complexity" -le $MAX_COMPLEXITY ] && [ "$lines" -le $MAX_FUNCTION ] && continue
        # a test's table of rows is data, not code
        case "$file" in tests/unit/*) [ "$complexity" -le $MAX_COMPLEXITY ] && continue ;; esac
        echo "function $file:$name" >>"$over"
        allowed function "$file:$name" && continue
        finding "$file: $name: $lines lines (at most $MAX_FUNCTION), complexity $complexity (at most $MAX_COMPLEXITY)"
    done < <(pmccabe "${sources[@]}" 2>/dev/null)
fi

if [ -f tests/lint/allow ]; then
    while read -r check key hash reason; do
        case "$check" in '' | '#'*) continue ;; esac
        if [ "$hash" != '#' ] || [ -z "$reason" ]; then
            finding "tests/lint/allow: \"$check $key\" has no reason (CHECK KEY # reason)"
        elif [ "$check" = lines ] || [ "$check" = function ]; then
            grep -qxF "$check $key" "$over" || finding "tests/lint/allow: \"$check $key\" is not needed any more"
        fi
    done <tests/lint/allow
fi
finish
