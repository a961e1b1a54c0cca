#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs shellcheck over every *.sh, *.bash and every tracked file with a shell shebang.
. "$(dirname "$0")/lib.sh"
need shellcheck
mapfile -t scripts < <(files '*' | grep -vE '\.(c|h|py|md|mk|yaml|json)$' | tr '\n' '\0' \
    | xargs -0 awk 'FNR == 1 && (FILENAME ~ /\.(sh|bash)$/ || /^#!.*[\/ ](ba|da)?sh( |$)/) {print FILENAME} {nextfile}')
[ ${#scripts[@]} -gt 0 ] || skip "no shell scripts"
read -r seen _ < <( (shellcheck --version; sha256sum -- "${scripts[@]}"; cat "$LINT/shell.sh") | sha256sum)
if was_clean shell "$seen"; then is_clean shell "$seen"; finish; fi
out=$(shellcheck -x -P SCRIPTDIR -P "$ROOT" -f gcc -S style -e SC1091 "${scripts[@]}" 2>&1) || true
while IFS= read -r line; do if [ -n "$line" ]; then finding "$line"; fi; done <<<"$out"
if [ "$found" -eq 0 ]; then is_clean shell "$seen"; fi
finish
