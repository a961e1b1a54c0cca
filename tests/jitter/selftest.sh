#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# selftest.sh LIBRARY PROBE: jitter.so changes when things occur and nothing else, and a seed repeats its pauses.
# TAP.
set -uo pipefail
lib=$(realpath "$1") probe=$2
export JITTER_ODDS=4 JITTER_MAX_US=500 JITTER_TRACE=1
n=0 failed=0
check() { # NAME COMMAND...
    local name=$1
    shift
    n=$((n + 1))
    if "$@"; then echo "ok $n - $name"; else failed=$((failed + 1)); echo "not ok $n - $name"; fi
}
pauses() { # SEED CALL N: the lines of the trace
    { JITTER_SEED=$1 LD_PRELOAD=$lib "$probe" "$2" "$3" >/dev/null; } 2>&1
}
same_result() {
    local call
    for call in 'lock 300' 'turns 200' 'bytes 100' 'fork 100'; do
        # shellcheck disable=SC2086 # two words
        [ "$("$probe" $call)" = "$(JITTER_SEED=7 LD_PRELOAD=$lib "$probe" $call 2>/dev/null)" ] || { echo "# $call differs"; return 1; }
    done
}
check 'a program under pauses has the same result' same_result
one=$(pauses 5 lock 400)
repeats() { [ "$one" = "$(pauses 5 lock 400)" ]; }
check 'the same seed gives the same pauses' repeats
differs() { [ "$one" != "$(pauses 6 lock 400)" ]; }
check 'another seed gives others' differs
# a quarter of 400 calls, less what the growth of the odds takes
many() { local lines; lines=$(grep -c . <<<"$one"); [ "$lines" -ge 40 ] && [ "$lines" -le 150 ]; }
check 'about one call in JITTER_ODDS pauses' many
bounded() { awk '$3 > 500 || $4 != "us" {bad = 1} END {exit bad || !NR}' <<<"$one"; }
check 'no pause is longer than JITTER_MAX_US' bounded
takes_time() { # the sum of the pauses is time that went by
    local start=${EPOCHREALTIME/./} us
    us=$(pauses 9 lock 1000 | awk '{s += $3} END {print s + 0}')
    [ "$us" -gt 10000 ] && [ $((${EPOCHREALTIME/./} - start)) -ge "$us" ]
}
check 'a pause takes its time' takes_time
children() { grep -q pthread_mutex_lock <<<"$(pauses 3 fork 200)"; }
check 'children of fork() pause too' children
of_fork() { [ "$(pauses 3 fork 200)" = "$(pauses 3 fork 200)" ]; }
check 'their pauses are repeated too' of_fork
all=$(pauses 2 turns 2000; pauses 2 bytes 2000)
for call in pthread_mutex_lock pthread_cond_wait pthread_cond_broadcast poll send recv read write; do
    check "$call pauses" grep -qE "^jitter: (__)?$call(_chk)? " <<<"$all"
done
none() { [ -z "$(pauses 0 lock 400)" ]; }
check 'without a seed nothing pauses' none
echo "1..$n"
[ $failed = 0 ]
