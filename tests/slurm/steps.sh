#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# steps.sh [STEPS [AT-ONCE]]: what short steps leave behind on four nodes: no process, file, port or memory. TAP.
# 20 steps in a row and 4 at once (make test); 200 and 16 (make soak). Needs what ways.sh needs.
set -uo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/slurm/suite.sh
. "$HERE/suite.sh"
steps=${1:-20} at_once=${2:-4}
cluster 4
found_up || { echo "Bail out! found-rank is not built (make found-ranks)"; exit 1; }
hosts=(ctl node1 node2 node3 node4)

job=$(ctl salloc -N4 -n64 --ntasks-per-node=16 --no-shell 2>&1 | sed -n 's/.*Granted job allocation \([0-9]*\)$/\1/p')
is_sum_of() { # N: of N steps with four ranks each, every rank has the right sum
    [ "$(grep -c 'by horovod sum 10$' "$RUN/steps.out")" = $((4 * $1)) ]
}
run_steps() { # STEPS
    : >"$RUN/steps.out"
    for _ in $(seq "$1"); do
        srun --hvd --overlap --jobid="$job" -N4 -n4 "$found_rank" >>"$RUN/steps.out" 2>&1
    done
}
run_at_once() { # STEPS
    : >"$RUN/steps.out"
    for _ in $(seq "$1"); do
        srun --hvd --overlap --jobid="$job" -N4 -n4 "$found_rank" >>"$RUN/steps.out" 2>&1 &
    done
    wait
}
# KiB of memory that is not a file's: of the daemons, and of the shared memory of all nodes
daemons_kib() {
    local h
    for h in "${hosts[@]}"; do ip netns pids "$NSP-$h"; done | while read -r p; do
        case $(cat "/proc/$p/comm" 2>/dev/null) in
            slurmd | slurmctld | munged | slurmstepd) awk '/^Rss(Anon|Shmem):/ {s += $2} END {print s + 0}' "/proc/$p/status" ;;
        esac
    done | awk '{s += $1} END {print s + 0}'
}
run_at_once "$at_once" # the daemons have their caches and threads afterwards
run_steps 5
within 60 is_sum_of 5
settle "${hosts[@]}"
kib=$(daemons_kib)

start=$(date +%s%N)
run_steps "$steps"
took_ms=$((($(date +%s%N) - start) / 1000000))
if is_sum_of "$steps"; then ok "$steps steps in a row: all ranks have the sum"; else
    not_ok "$steps steps in a row: all ranks have the sum" "$(grep -v 'sum 10$' "$RUN/steps.out" | head -20)"
fi
echo "# $((took_ms / steps)) ms a step"
left_nothing 'no process, file, port or socket is left' "${hosts[@]}"
run_at_once "$at_once"
if is_sum_of "$at_once"; then ok "$at_once steps at once: all ranks have the sum"; else
    not_ok "$at_once steps at once: all ranks have the sum" "$(grep -v 'sum 10$' "$RUN/steps.out" | head -20)"
fi
left_nothing 'no process, file, port or socket is left, after steps at once' "${hosts[@]}"
grown=$(($(daemons_kib) - kib))
echo "# the daemons of five hosts: $kib KiB, $grown KiB more afterwards"
# of six daemons; a leaked MiB a step would be far above it
if [ $grown -lt 6000 ]; then ok 'no memory is left'; else not_ok 'no memory is left' "$grown KiB"; fi

# --- steps without --hvd ----------------------------------------------------------------------------------
environment() { # the environment of each task but for what counts the steps and names ports
    srun --overlap --jobid="$job" -N4 -n4 env \
        | grep -vE '^SLURM_(STEP_ID|STEPID|SRUN_COMM_PORT|STEP_LAUNCHER_PORT|TASK_PID)=' | sort
}
with=$(environment)
: >"$RUN/etc/plugstack.conf"
without=$(environment)
is 'without --hvd the environment is that of a Slurm without the plugin' '' "$(diff <(echo "$without") <(echo "$with"))"
is 'which has the tasks of four nodes' 4 "$(grep -c '^SLURMD_NODENAME=' <<<"$with")"

echo "1..$n"
[ "$failed" -eq 0 ]
