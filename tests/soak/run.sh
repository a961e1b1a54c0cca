#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A minute of tests/soak for `make test`: run.sh BUILT, the folder of bin and lib, as TAP. `make soak` is the long one.
# On a machine that does much else each operation waits for its turn on a processor: what takes seconds alone took
# more than two minutes there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
built=$(realpath "$1")
export CAPI_LIBRARY=$built/lib/libhvd.so
seed=${SOAK_SEED:-$RANDOM}
n=0
bad=0
play() { # NAME RANKS ARGUMENTS...
    local name=$1 ranks=$2 out
    shift 2
    n=$((n + 1))
    if out=$(timeout 400 "$built/bin/horovodrun" -np "$ranks" /usr/bin/python3 "$here/soak.py" "$@" 2>&1); then
        echo "ok $n - $name: $(sed -n 's/.*soak: //p' <<<"$out" | tail -1)"
    else
        bad=$((bad + 1))
        echo "not ok $n - $name (SOAK_SEED=$seed)"
        tail -20 <<<"$out" | sed 's/^/# /'
    fi
}
play "random operations in shared memory" 4 --seconds 15 --seed "$seed"
HVD_TRANSPORT=tcp play "random operations over TCP" 3 --seconds 15 --seed "$seed"
HOROVOD_CACHE_CAPACITY=3 play "random operations with a cache of 3" 2 --seconds 8 --seed "$seed"
play "a hundred thousand small ones" 2 --tiny 100000
echo "1..$n"
exit "$bad"
