#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# newest.sh: tests/slurm/run.sh on the newest Slurm that Debian has (suite sid), in a clean Debian with the plugin
# compiled here against that release's headers. No PyTorch there: tests that train are skipped. TAP. Needs root.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
BUILD=$(cd "$ROOT" && realpath -m "${BUILD:-build}")
cache=${RM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster}
include=$cache/slurm-headers/sid/usr/include
[ -d "$include" ] || "$HERE/headers.sh" >&2
"$HERE/root.sh" sid "$BUILD/newest/root"
env -u MAKEFLAGS make -s -C "$ROOT" BUILD="$BUILD/newest" SLURM_INCLUDE="$include" EXTRA_CFLAGS="-isystem $include" \
    "$BUILD"/newest/plain/lib/spank_{hvd,box}.so >&2
exec "$HERE/inroot" "$BUILD/newest/root" env RM_SLURM_RUN=/run/newest BUILD="$BUILD" \
    PLUGIN="$BUILD/newest/plain/lib/spank_hvd.so" "$ROOT/tests/slurm/run.sh"
