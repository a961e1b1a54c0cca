# shellcheck shell=bash disable=SC2154,SC2016 # ways.sh sources this: its functions and variables; tasks expand
# SPDX-License-Identifier: Apache-2.0
# Who stops ranks, and when they end: a user, Slurm, the node. Eight ranks of a world on four nodes add up meanwhile.
# `stay` handles SIGTERM and SIGUSR1, as a program does that saves its state; `work` does not.
stays() { [ "$(grep -c stays "$1")" = 8 ]; }
trains() { # NAME WORD [SRUN-OPTION...]: starts the ranks; sets job, train and out when all are at work
    out=$RUN/$1.train
    : >"$out"
    ctl env HVD_PEER_TIMEOUT="${peer_timeout:-30}" srun -Q --hvd -J "$1" -N4 -n8 --ntasks-per-node=2 "${@:3}" \
        "$found_rank" hvd "$2" >"$out" 2>&1 &
    train=$!
    within 180 stays "$out" || cat "$out"
    job=$(ctl squeue -h -n "$1" -o %A)
}
does() { began=$SECONDS && "$@"; } # COMMAND...: what stops the ranks
no_rank() { # of the job; another cluster on this machine may have a job of the same number
    local ns p
    for ns in $(namespaces); do
        for p in $(ip netns pids "$ns"); do
            if [ "$(cat "/proc/$p/comm" 2>/dev/null)" = found-rank ] && grep -qszx "SLURM_JOB_ID=$job" "/proc/$p/environ"; then
                return 1
            fi
        done
    done
}
ends() { # NAME SECONDS CODE WORD...: srun ends with the code and these words, and no rank of the job is left
    local name=$1 limit=$2 code=$3 rc took
    shift 3
    wait "$train"
    rc=$?
    took=$((SECONDS - began))
    if [ $rc -ne "$code" ] || [ $took -gt "$limit" ]; then
        not_ok "$name" "srun's exit code $rc after $took s, not $code within $limit s"$'\n'"$(cat "$out")"
    elif ! within 20 no_rank; then
        not_ok "$name" 'a rank is left'
    else
        has "$name" "$(sort "$out" | sed 's/, pid [0-9]*/, pid P/' | uniq -c | tr -s ' ')" "$@"
    fi
}
one_cause() { # NAME EXPRESSION: whatever ranks print about their end is this
    is "$1" '' "$(grep '^found-rank' "$out" | grep -v ": rank [0-7] (host node[1-4], pid [0-9]*) $2\$")"
}
left() { for r in 0 1 2 3 4 5 6 7; do echo " 1 rank $r/8 leaves: $1"; done; }
kill_task() { # SIGNAL: rank 4
    "$HERE/on" node3 bash -c 'for p in $(grep -lszx "SLURM_JOB_ID=$1" /proc/[0-9]*/environ); do p=${p%/environ}
        [ "$(cat $p/comm)" = found-rank ] && grep -qzx SLURM_LOCALID=0 $p/environ && exec kill -$2 ${p#/proc/}; done' - "$job" "$1"
}
mapfile -t left_usr1 < <(left 'User defined signal 1')
mapfile -t left_term < <(left Terminated)

# --- a request to leave -----------------------------------------------------------------------------
stop_usr1() {
    trains usr1 stay
    does ctl scancel --signal=USR1 "$job"
    ends 'scancel --signal=USR1: all ranks receive it, and leave' 60 0 "${left_usr1[@]}"
}
stop_limit() {
    trains limit stay --signal=USR1@600
    does ctl scontrol update JobId="$job" TimeLimit=10 # slurmctld looks at limits twice a minute
    ends '--signal=USR1@600: all ranks receive it ten minutes before the limit, and leave' 100 0 "${left_usr1[@]}"
}
is_stopped() { # the job, on the last node
    [ "$("$HERE/on" node4 bash -c 'for p in $(grep -lszx "SLURM_JOB_ID=$0" /proc/[0-9]*/environ); do cat ${p%environ}stat; done' "$job" \
        2>/dev/null | grep -c '(found-rank) T')" = 2 ]
}
is_past() { [ "$SECONDS" -ge "$1" ]; }
stop_suspend() {
    local suspended
    peer_timeout=8 trains suspend stay
    ctl scontrol suspend "$job"
    within 120 is_stopped
    suspended=$SECONDS
    within 60 is_past $((suspended + 12)) # it is the passing of time that must not end the world
    does ctl scontrol resume "$job"
    ctl scancel --signal=USR1 "$job"
    ends 'scontrol suspend: a pause longer than HVD_PEER_TIMEOUT is no failure' 60 0 "${left_usr1[@]}"
}
stop_preempt() { # the partitions compete for GPUs, which no other job uses
    ctl scontrol create PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
    ctl scontrol create PartitionName=high Nodes=ALL PriorityTier=9 PreemptMode=off
    script preempt '#SBATCH --requeue --open-mode=append --gres=gpu:fake:4 -p low' \
        'if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then' \
        "    srun -Q $found_rank hvd stay" \
        '    echo "srun ended with $?"' \
        '    scontrol requeue $SLURM_JOB_ID' \
        'else' \
        "    srun -Q bash -c 'echo restart \$SLURM_RESTART_COUNT of \$HOROVOD_RANK'" \
        'fi'
    submit preempt -N4 -n8 --ntasks-per-node=2
    out=$RUN/preempt.out4294967294
    : >>"$out"
    within 180 stays "$out"
    is 'a job of a higher partition starts at once' 4 \
        "$(ctl srun -Q -p high -N4 -n4 --gres=gpu:fake:4 echo started | grep -c started)"
    within 120 job_is "$job" PENDING
    # Slurm would wait for two minutes; in the same second it refuses the job: "credential revoked"
    ctl scontrol update JobId="$job" StartTime=now+5
    within 180 job_is "$job" COMPLETED
    has 'preemption: all ranks receive SIGTERM and leave; requeued, they run with SLURM_RESTART_COUNT=1' \
        "$(sort "$out" | uniq -c | tr -s ' ')" "${left_term[@]}" ' 1 srun ended with 0' ' 1 restart 1 of 0' ' 1 restart 1 of 7'
}

# --- an end -------------------------------------------------------------------------------------------
stop_step() { # Slurm begins with SIGKILL
    trains step work
    does ctl scancel "$job.0"
    ends 'scancel of a step' 60 137 'CANCELLED AT' 'node4: tasks 6-7: Killed'
    one_cause 'a rank that sees the end of another one names both explanations' \
        'was lost: connection closed: it was killed, or Slurm has ended the step'
}
stop_job() {
    trains job work
    does ctl scancel "$job"
    ends 'scancel of a job' 60 143 'CANCELLED AT' 'Terminated'
    one_cause 'no rank of a cancelled job reports a lost peer' 'was stopped by Slurm: SIGTERM'
}
stop_term() { # Slurm would end some ranks before they have printed the cause
    trains term work --kill-on-bad-exit=0
    does kill_task TERM
    ends 'SIGTERM to one task: all other ranks say so' 60 143 \
        ' 7 found-rank: allreduce: rank 4 (host node3, pid P) ended by SIGTERM' 'node3: task 4: Terminated'
}
stop_kill() {
    trains kill work --kill-on-bad-exit=0
    does kill_task KILL
    ends 'a task is killed: all other ranks name it' 60 137 \
        ' 7 found-rank: allreduce: rank 4 (host node3, pid P) was lost: connection closed' 'node3: task 4: Killed'
}
hosts=(ctl node1 node2 node3 node4)
settle "${hosts[@]}"
together stop_usr1 stop_limit stop_suspend stop_preempt stop_step stop_job stop_term stop_kill
within 120 is_idle
left_nothing 'no process, file, port or socket is left' "${hosts[@]}"

# --- the cluster ----------------------------------------------------------------------------------------
trains restart stay
kill -TERM "$(cat "$RUN/slurmctld.pid")"
is_down() { ! alive "$RUN/slurmctld.pid"; }
within 90 is_down
(cd / && start_slurmctld) # a host has no clone under /tmp
within 90 test -s "$RUN/slurmctld.pid"
answers() { # it knows the job, and the nodes are registered again: srun retries after a minute otherwise
    [ "$(ctl squeue -h -o %A 2>/dev/null)" = "$job" ] && [ "$(ctl sinfo -h -r -p all -o %D | awk '{s += $1} END {print s}')" = 4 ]
}
within 120 answers
does ctl scancel --signal=USR1 "$job"
ends 'slurmctld is restarted: the step continues, and receives signals' 60 0 "${left_usr1[@]}"
is 'and the next job starts' "$(one_each horovod)" "$(found_ranks "$(srun --hvd -N4 -n4 "$found_rank" 2>&1)")"

within 120 is_idle
settle ctl node1 node2 node3
peer_timeout=10 trains off work
ip -n "$NSP-sw" link set p-node4 down
does kill -KILL "$(cat "$RUN/node4.pid")"
within 60 no_rank
took=$((SECONDS - began))
off='a node is powered off: the ranks of all others end soon after HVD_PEER_TIMEOUT, and name it'
if [ $took -lt 20 ]; then
    has "$off" "$(sed 's/, pid [0-9]*/, pid P/' "$out" | sort | uniq -c | tr -s ' ')" \
        ' 6 found-rank: allreduce: rank 6 (host node4, pid P) was lost: silent for 10 s (HVD_PEER_TIMEOUT)'
else
    not_ok "$off" "after $took s: $(cat "$out")"
fi
ctl scontrol update NodeName=node4 State=DOWN Reason=off # as slurmctld after SlurmdTimeout
ends 'and srun ends when Slurm has given up the node, and names it' 100 1 'Node failure on node4'
rm -rf "$RUNDIR/$job".0.3.* # what the node had in its own /run
left_nothing 'nothing is left on the other nodes' ctl node1 node2 node3
