# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the checks of this folder share. A check prints one finding a line ("file:line: what") and exits
# 0 (clean), 1 (findings) or 77 (could not run; the reason is its last line).
#   LINT_ROOT   the tree to check (default: this one)
#   BUILD       the build folder, relative to the tree
set -euo pipefail
LINT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=${LINT_ROOT:-$(cd "$LINT/../.." && pwd)}
BUILD=${BUILD:-build}
cd "$ROOT"

found=0
finding() { found=1; echo "$*"; }
finish() { exit "$found"; }
skip() { echo "$*"; exit 77; }
need() { command -v "$1" >/dev/null || skip "$1 is not installed (tests/setup/deb.sh lint)"; }

# files PATTERN...: tracked files that exist
files() {
    git ls-files -- "$@" | while IFS= read -r f; do
        if [ -f "$f" ]; then printf '%s\n' "$f"; fi
    done
}

# Remembers what was clean, in this and other clones, under a hash of everything that the check reads:
# was_clean KIND HASH; is_clean KIND HASH...
was_clean() { [ -n "${RM_CACHE:-}" ] && [ -e "$RM_CACHE/$1/$2" ]; }
is_clean() {
    local kind=$1
    shift
    if [ -n "${RM_CACHE:-}" ] && [ $# -gt 0 ]; then
        mkdir -p "$RM_CACHE/$kind" && (cd "$RM_CACHE/$kind" && touch -- "$@")
    fi
}

# allowed CHECK KEY: an exception with a reason is in the allow file of the tree
allowed() {
    awk -v c="$1" -v k="$2" '$1 == c && $2 == k && $3 == "#" && NF > 3 {ok = 1} END {exit !ok}' \
        "$ROOT/tests/lint/allow" 2>/dev/null
}
