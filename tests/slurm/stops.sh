# shellcheck shell=bash disable=SC2154,SC2016 # ways.sh sources this: its functions and variables; tasks expand
# SPDX-License-Identifier: Apache-2.0
# Who stops ranks, and when they end: a user, Slurm, the node. Eight ranks of a world on four nodes add up meanwhile.
# `stay` handles SIGTERM and SIGUSR1, as a program does that saves its state; `work` does not.
stays() { [ "$(grep -c stays "$1")" = 8 ]; }
trains() { # WORD [SRUN-OPTION...]: starts the ranks; sets job, train, and the time when all are at work
    : >"$RUN/train.out"
    ctl env HVD_PEER_TIMEOUT="${peer_timeout:-30}" srun -Q --hvd -N4 -n8 --ntasks-per-node=2 "${@:2}" \
        "$found_rank" hvd "$1" >"$RUN/train.out" 2>&1 &
    train=$!
    within 60 stays "$RUN/train.out" || cat "$RUN/train.out"
    job=$(ctl squeue -h -o %A)
    began=$SECONDS
}
no_rank() {
    local ns
    ! for ns in $(namespaces); do
        ip netns pids "$ns" | sed 's,.*,/proc/&/comm,' | xargs -r cat 2>/dev/null
    done | grep -qx found-rank
}
ends() { # NAME SECONDS CODE WORD...: the step ends with the code of srun and these words, and no rank is left
    local name=$1 limit=$2 code=$3 rc took
    shift 3
    wait "$train"
    rc=$?
    took=$((SECONDS - began))
    if [ $rc -ne "$code" ] || [ $took -gt "$limit" ]; then
        not_ok "$name" "srun's exit code $rc after $took s, not $code within $limit s"$'\n'"$(cat "$RUN/train.out")"
    elif ! within 20 no_rank; then
        not_ok "$name" "a rank is left"
    else
        has "$name" "$(sort "$RUN/train.out" | sed 's/, pid [0-9]*/, pid P/' | uniq -c | tr -s ' ')" "$@"
    fi
}
left() { for r in 0 1 2 3 4 5 6 7; do echo " 1 rank $r/8 leaves: $1"; done; }
kill_task() { # SIGNAL: one task on node3
    "$HERE/on" node3 bash -c 'for p in /proc/[0-9]*; do [ "$(cat $p/comm)" = found-rank ] && exec kill -'"$1"' ${p#/proc/}; done'
}

# --- a request to leave -----------------------------------------------------------------------------
mapfile -t all_left < <(left 'User defined signal 1')
trains stay
ctl scancel --signal=USR1 "$job"
ends 'scancel --signal=USR1: all ranks receive it, and leave' 60 0 "${all_left[@]}"
trains stay --signal=USR1@60
ctl scontrol update JobId="$job" TimeLimit=1
ends '--signal=USR1@60: all ranks receive it a minute before the limit, and leave' 100 0 "${all_left[@]}"

peer_timeout=2 trains stay
ctl scontrol suspend "$job"
is_stopped() { [ "$("$HERE/on" node4 bash -c 'cat /proc/[0-9]*/stat' 2>/dev/null | grep -c '(found-rank) T')" = 2 ]; }
within 60 is_stopped
suspended=$SECONDS
past() { [ $((SECONDS - suspended)) -ge 6 ]; }
within 60 past # it is the passing of time that must not end the world
ctl scontrol resume "$job"
ctl scancel --signal=USR1 "$job"
ends 'scontrol suspend: a pause longer than HVD_PEER_TIMEOUT is no failure' 60 0 "${all_left[@]}"

within 60 is_idle
ctl scontrol create PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
ctl scontrol create PartitionName=high Nodes=ALL PriorityTier=9 PreemptMode=off
cat >"$RUN/preempt.sh" <<J
#!/bin/bash
#SBATCH --hvd --requeue --open-mode=append --exclusive -p low
if [ "\${SLURM_RESTART_COUNT:-0}" = 0 ]; then
    srun -Q $found_rank hvd stay
    echo "srun ended with \$?"
    scontrol requeue \$SLURM_JOB_ID
else
    srun -Q bash -c 'echo restart \$SLURM_RESTART_COUNT of \$HOROVOD_RANK'
fi
J
submit preempt -N4 -n8 --ntasks-per-node=2
out=$RUN/preempt.out4294967294
: >>"$out"
within 60 stays "$out"
is 'a job of a higher partition starts at once' 4 "$(ctl srun -Q -p high -N4 --exclusive echo started | grep -c started)"
is_pending() { job_is "$job" PENDING; }
within 60 is_pending
# Slurm would wait for two minutes; in the same second it refuses the job: "credential revoked"
ctl scontrol update JobId="$job" StartTime=now+5
within 120 job_is "$job" COMPLETED
mapfile -t all_left < <(left Terminated)
has 'preemption: all ranks receive SIGTERM and leave; requeued, they run with SLURM_RESTART_COUNT=1' \
    "$(sort "$out" | uniq -c | tr -s ' ')" "${all_left[@]}" ' 1 srun ended with 0' ' 1 restart 1 of 0' ' 1 restart 1 of 7'

# --- an end -------------------------------------------------------------------------------------------
trains work
ctl scancel "$job.0"
ends 'scancel of a step' 30 137 'CANCELLED AT' 'node4: tasks 6-7: Killed'
trains work
ctl scancel "$job"
ends 'scancel of a job' 30 143 'CANCELLED AT' 'Terminated'
trains work --kill-on-bad-exit=0 # Slurm would end some ranks before they have printed the cause
kill_task TERM
ends 'SIGTERM to one task: all other ranks say so' 30 143 ' 7 found-rank: allreduce: rank 4 (host node3, pid P) ended by SIGTERM' \
    'node3: task 4: Terminated'
trains work --kill-on-bad-exit=0
kill_task KILL
ends 'a task is killed: all other ranks name it' 30 137 \
    ' 7 found-rank: allreduce: rank 4 (host node3, pid P) was lost: connection closed' 'node3: task 4: Killed'

# --- the cluster ----------------------------------------------------------------------------------------
trains stay
kill -TERM "$(cat "$RUN/slurmctld.pid")"
is_down() { ! alive "$RUN/slurmctld.pid"; }
within 90 is_down
(cd / && start_slurmctld) # a host has no clone under /tmp
within 90 test -s "$RUN/slurmctld.pid"
answers() { # it knows the job, and the nodes are registered again: srun retries after a minute otherwise
    [ "$(ctl squeue -h -o %A 2>/dev/null)" = "$job" ] && [ "$(ctl sinfo -h -r -p all -o %D | awk '{s += $1} END {print s}')" = 4 ]
}
within 90 answers
ctl scancel --signal=USR1 "$job"
mapfile -t all_left < <(left 'User defined signal 1')
ends 'slurmctld is restarted: the step continues, and receives signals' 120 0 "${all_left[@]}"
is 'and the next job starts' "$(one_each horovod)" "$(found_ranks "$(srun --hvd -N4 -n4 "$found_rank" 2>&1)")"

sed -i 's/^SlurmdTimeout=.*/SlurmdTimeout=10/' "$RUN/etc/slurm.conf"
ctl scontrol reconfigure
peer_timeout=5 trains work
ip -n "$NSP-sw" link set p-node4 down
kill -KILL "$(cat "$RUN/node4.pid")"
six() { [ "$(grep -c 'rank 6 (host node4, pid [0-9]*) was lost: silent for 5 s' "$RUN/train.out")" -ge 6 ]; }
if within 30 six; then ok 'a node is off: all other ranks name a rank of it after HVD_PEER_TIMEOUT'; else
    not_ok 'a node is off: all other ranks name a rank of it after HVD_PEER_TIMEOUT' "$(cat "$RUN/train.out")"
fi
ends 'and srun ends when Slurm has missed the node, and names it' 150 1 'Node failure on node4'
