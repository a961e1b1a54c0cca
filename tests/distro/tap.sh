# shellcheck shell=bash disable=SC2001 # sed for lines
# SPDX-License-Identifier: Apache-2.0
# A test of TAP, for the scripts of this folder.
n=0 failed=0
is() { # NAME EXPECTED ACTUAL
    n=$((n + 1))
    if [ "$2" = "$3" ]; then echo "ok $n - $1"; return; fi
    # shellcheck disable=SC2034 # the script's exit code
    failed=$((failed + 1))
    echo "not ok $n - $1"
    sed 's/^/#   /' <<<"expected: $2"$'\n'"got: $3"
}
