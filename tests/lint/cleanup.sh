#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A variable with CLEANUP(fn) or AUTOFREE has a value before the first branch (cleanup.py).
. "$(dirname "$0")/lib.sh"
need python3
exec python3 "$LINT/cleanup.py"
