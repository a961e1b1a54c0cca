#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo-local.sh STAGE MAKE: trains runtime/examples/train_digits.py on two ranks of this machine,
# from nothing: installs what is missing, builds the installed tree, runs it by horovodrun.
# Called by `make demo-local`.
set -euo pipefail
stage=$1 make=$2
python=${PYTHON:-/usr/bin/python3}
here=$(cd "$(dirname "$0")/../.." && pwd)
log=$stage.log

say() { printf '\n== %s\n' "$*"; }
die() { echo "demo-local: $*" >&2; exit 1; }

say "1/3 packages (Debian's compiler and PyTorch; about 700 MB where they are missing)"
"$here/tests/setup/deb.sh" build torch
say "2/3 build (portable runtime and launchers; about a minute the first time)"
mkdir -p "$(dirname "$stage")"
if ! "$make" --no-print-directory -C "$here" -j2 stage >"$log" 2>&1; then
    tail -20 "$log" >&2
    die "the build failed; the whole output is in $log"
fi
"$python" -c 'import torch, sklearn' || die "$python has no torch or no scikit-learn (set PYTHON to one that has)"
say "3/3 training: 2 ranks, each sees only half of the ten digits"
command=("$stage/bin/horovodrun" -np 2 "$python" "$here/runtime/examples/train_digits.py")
echo "   ${command[*]}"
start=$(date +%s%N)
"${command[@]}" || die "the training failed with code $?; the error message above names the cause"
say "done in $((($(date +%s%N) - start) / 1000000)) ms: both ranks hold the same weights, which know all ten digits"
echo "   without averaging it must fail: ${command[*]} --no-average"
