#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Words of the tree's old private dialect, and prose of Markdown beyond 100 columns; counted by counts.py against
# `ratchet`.
. "$(dirname "$0")/lib.sh"
need python3
exec python3 "$LINT/counts.py" prose
