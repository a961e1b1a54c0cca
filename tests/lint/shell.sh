#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs it over every *.sh, *.bash and every tracked file with a shell shebang.
. "$(dirname "$0")/lib.sh"
need shellcheck
mapfile -t scripts < <(files '*' | grep -vE '\.(c|h|py|md|mk|yaml|json)$' | tr '\n' '\0' \
    | xargs -0 awk 'FNR == 1 && (FILENAME ~ /\.(sh|bash)$/ || /^#!.*[\/ ](ba|da)?sh( |$)/) {print FILENAME} {nextfile}')
[ ${#scripts[@]} -gt 0 ] || skip "no shell scripts"
out=$(shellcheck -x -P SCRIPTDIR -P "$ROOT" -f gcc -S style -e SC1091 "${scripts[@]}" 2>&1) || true
while IFS= read -r line; do if [ -n "$line" ]; then finding "$line"; fi; done <<<"$out"
finish
