#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Man pages (mandoc -Tlint, warnings and worse), spelling of prose and comments (codespell), relative links
# of Markdown files.
. "$(dirname "$0")/lib.sh"
need mandoc
need codespell
while IFS= read -r f; do
    while IFS= read -r line; do finding "$line"; done < <(mandoc -Tlint -Wwarning "$f" 2>&1 | grep -v 'cannot open' || true)
done < <(files '*.1' '*.8')
mapfile -t texts < <(files '*.md' '*.c' '*.h' '*.sh' '*.py' '*.mk' '*.1' '*.8' '*.yaml' | grep -vE '/(testdata|corpus|golden)/')
if [ ${#texts[@]} -gt 0 ]; then
    while IFS= read -r line; do if [ -n "$line" ]; then finding "$line"; fi; done \
        < <(codespell -q 3 -L "$(tr '\n' ',' <"$LINT/words.ok")" "${texts[@]}" 2>&1 || true)
fi
while IFS= read -r f; do
    while IFS= read -r target; do
        target=${target%%#*}
        [ -n "$target" ] || continue
        [ -e "$(dirname "$f")/$target" ] || finding "$f: link to $target, which is not there"
    done < <(grep -oE '\]\([^)]+\)' "$f" | sed -E 's/^\]\(//; s/\)$//' | grep -vE '^(https?:|mailto:|#)' || true)
done < <(files '*.md')
finish
