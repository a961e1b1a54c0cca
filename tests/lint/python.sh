#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ruff check and ruff format over all tracked Python.
. "$(dirname "$0")/lib.sh"
mapfile -t sources < <(files '*.py' '*.pyi')
[ ${#sources[@]} -gt 0 ] || skip "no Python"
venv=$("$LINT/../setup/venv.sh" lint) || skip "the Python environment with ruff cannot be made (tests/setup/venv.sh lint)"
out=$("$venv/bin/ruff" check --no-cache --output-format=concise "${sources[@]}" 2>&1) || true
while IFS= read -r line; do
    case "$line" in '' | 'All checks passed!' | Found* | *fixable*) ;; *) finding "$line" ;; esac
done <<<"$out"
out=$("$venv/bin/ruff" format --no-cache --check --output-format=concise "${sources[@]}" 2>&1) || true
while IFS= read -r line; do
    case "$line" in '' | [0-9]*' already formatted' | [0-9]*' would be reformatted'*) ;; *) finding "$line" ;; esac
done <<<"$out"
finish
