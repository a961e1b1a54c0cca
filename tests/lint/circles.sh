#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No circle of more than five files (circles.py). Checks the objects that are built.
. "$(dirname "$0")/lib.sh"
need python3
need nm
exec python3 "$LINT/circles.py" "$BUILD/${V:-plain}"
