#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck over every *.sh and every tracked file with a shell shebang.
. "$(dirname "$0")/lib.sh"
need shellcheck
scripts=()
while IFS= read -r f; do
    case "$f" in *.c | *.h | *.py | *.md | *.mk | *.yaml | *.json) continue ;; esac
    if [[ $f = *.sh ]] || head -1 "$f" 2>/dev/null | grep -qaE '^#!.*[/ ](ba|da)?sh( |$)'; then scripts+=("$f"); fi
done < <(files '*')
[ ${#scripts[@]} -gt 0 ] || skip "no shell scripts"
out=$(shellcheck -x -P SCRIPTDIR -P "$ROOT" -f gcc -S style -e SC1091 "${scripts[@]}" 2>&1) || true
while IFS= read -r line; do if [ -n "$line" ]; then finding "$line"; fi; done <<<"$out"
finish
