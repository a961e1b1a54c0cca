#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the checks named (default: all) and prints TAP with the findings under each, then a summary.
# shellcheck disable=SC2001
set -uo pipefail
cd "$(dirname "$0")" || exit 1
checks=("$@")
if [ -n "${RM_ONLY:-}" ]; then checks=("$RM_ONLY"); fi # tests/run.py repeats what failed
[ ${#checks[@]} -gt 0 ] || checks=(layers circles pure sizes symbols format tidied cppcheck cleanup shell python docs words names prose)
passed=0 failed=0 skipped=0 n=0 bad=
echo "1..${#checks[@]}"
for c in "${checks[@]}"; do
    n=$((n + 1))
    start=$(date +%s.%N)
    out=$(timeout 240 "./$c.sh" 2>&1)
    rc=$?
    took=$(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN {printf "%.1f s", b - a}')
    case $rc in
        0) passed=$((passed + 1)); echo "ok $n - $c ($took)" ;;
        77) skipped=$((skipped + 1)); echo "ok $n - $c # SKIP ${out##*$'\n'}" ;;
        *)
            failed=$((failed + 1))
            bad+="$c"$'\n'
            echo "not ok $n - $c ($(grep -c . <<<"$out") findings, $took)"
            sed 's/^/#   /' <<<"$out"
            ;;
    esac
done
if [ -n "${RM_FAILED:-}" ]; then printf %s "$bad" >"$RM_FAILED"; fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
