#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# modules.sh GO PROGRAM HASH: fails unless the modules that the program was built from, with their
# versions and sums, have this hash. The one hash replaces go.sum: each sum is compared before the
# program is used, whichever proxy the module came from. The hash changes with go.mod only.
set -euo pipefail
hash=$("$1" version -m "$2" | sed -n 's/^\t[^\t]*\t\(.*\th1:.*\)/\1/p' | LC_ALL=C sort | sha256sum | cut -c1-64)
[ "$hash" = "$3" ] || { echo "$2: its modules have the hash $hash, expected $3" >&2; exit 1; }
