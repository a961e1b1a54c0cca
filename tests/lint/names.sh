#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Functions are noun_verb (one in 50 may have one word), a struct tag is used once in the product, one dialect
# of C (!p, sizeof(x)); counted by counts.py against `ratchet`.
. "$(dirname "$0")/lib.sh"
need python3
exec python3 "$LINT/counts.py" names
