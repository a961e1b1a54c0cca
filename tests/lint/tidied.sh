#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Collects the findings of clang-tidy (tidy.sh, started by make).
. "$(dirname "$0")/lib.sh"
need clang-tidy
n=0
while IFS= read -r f; do
    stamp=$BUILD/lint/${f%.c}.tidy
    [ -f "$stamp" ] || continue
    n=$((n + 1))
    while IFS= read -r line; do finding "$line"; done <"$stamp"
done < <(files '*.c')
[ "$n" -gt 0 ] || skip "clang-tidy has not run (make lint runs it)"
finish
