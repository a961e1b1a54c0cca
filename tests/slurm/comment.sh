# shellcheck shell=bash disable=SC2154,SC2016 # run.sh sources this: its functions and variables; tasks expand
# SPDX-License-Identifier: Apache-2.0
# The line of a step in its job's comment, for squeue -o %k and scontrol show job; and hvd-status of a job without a
# running step, which reads it. `own` and `ask` are those of status.sh.
plugstack "${conf[@]}"
within 120 is_idle
commented() { ctl env PATH="$own:$PATH" srun -Q "$@"; } # srun finds hvd-status in PATH
last_job() { ctl squeue -h --states=all -o %A | sort -n | tail -1; }
comment_of() { ctl squeue -h --states=all -j "$1" -o %k; }
fails() { # NAME COMMAND WANT [SRUN-OPTION...]: rank 3 runs the command; the comment is WANT, JOB in it is the number
    local name=$1 cmd=$2 want=$3
    shift 3
    commented --hvd "$@" -N2 -n4 --ntasks-per-node=2 bash -c "[ \$HOROVOD_RANK = 3 ] && { $cmd; }; exec sleep 300" >/dev/null 2>&1
    job=$(last_job)
    is "$name" "${want/JOB/$job}" "$(comment_of "$job")"
}

# --- the first failure, by default --------------------------------------------------------------------------
fails 'comment: a task that exits: rank, node and code' 'exit 7' 'hvd JOB.0: Failed: rank 3 on node2 exited with code 7'
is 'hvd-status: the first failure of a job that has ended' "Failed: rank 3 on node2 exited with code 7 0" \
    "$(ask "$job" 2>&1 | tail -1) $(ask "$job" >/dev/null 2>&1; echo $?)"
is 'hvd-status --json: the same' 'Failed 0 3 node2 7' "$(ask --json "$job.0" 2>/dev/null | python3 -c '
import json, sys
r = json.loads(sys.stdin.read())
f = r["failure"]
print(r["state"], r["slurm"]["step"], f["rank"], f["node"], f["exitCode"])' 2>&1)"
is 'hvd-status: any user may read the record' 'Failed: rank 3 on node2 exited with code 7' "$(UID_GID=65534:65534 ask "$job" 2>&1 | tail -1)"
fails "comment: a task that is killed, behind the user's own text" 'kill -9 $$' \
    'my | text | hvd JOB.0: Failed: rank 3 on node2 was killed by signal 9 (SIGKILL)' --comment='my | text'
fails 'comment=off: there is none' 'exit 7' '(null)' --hvd=comment=off
has 'hvd-status: then it says that the job has ended' "$(ask "$job" 2>&1)" "hvd-status: job $job is " ': only a running job has ranks'
commented --hvd --comment=mine -N2 -n2 true
is 'comment: a step that succeeds leaves it alone' mine "$(comment_of "$(last_job)")"
plugstack "${conf[0]}" dir=/no/such/dir
commented --hvd -N2 -n2 true >/dev/null 2>&1
has 'comment: a node that is not set up: its sentence' "$(comment_of "$(last_job)")" 'Failed: node' 'dir=/no/such/dir'
plugstack "${conf[@]}"

cat >"$RUN/comment-job.sh" <<J
#!/bin/bash
srun -Q --hvd -n2 bash -c '[ \$HOROVOD_RANK = 1 ] && [ "\${SLURM_ARRAY_TASK_ID:-1}" = 1 ] && exit 5; exit 0'
srun -Q --hvd -n2 true
J
ctl sbatch -Q --wait -N1 -n2 -w node1 -o /dev/null --array=1-2 "$RUN/comment-job.sh"
array=$(ctl squeue -h --states=all -o %F | sort -n | tail -1)
is 'comment: of an element of an array, which a later step that succeeds keeps' \
    'hvd N.0: Failed: rank 1 on node1 exited with code 5' "$(comment_of "${array}_1" | sed 's/hvd [0-9]*/hvd N/')"
is 'comment: the other element has none' '(null)' "$(comment_of "${array}_2")"
has 'hvd-status: an element by its number in the array' "$(ask "${array}_1" 2>&1)" ', step 0: ' 'Failed: rank 1 on node1 exited with code 5'

prog='[ $HOROVOD_RANK = 3 ] && exit 7; exec sleep 300'
commented --hvd -w node1 -n1 --comment=mine bash -c "$prog" : -w node2 -n3 bash -c "$prog" >/dev/null 2>&1
job=$(($(last_job) - 1)) want='Failed: rank 3 on node2 exited with code 7'
is 'comment: of a heterogeneous job, at its first component' "mine | hvd $job.0: $want" "$(ctl squeue -h --states=all -o '%A %k' | sed -n "s/^$job //p")"
is 'hvd-status: the first failure of a heterogeneous job, by the number of either component' "$want"$'\n'"$want" \
    "$(for j in $job $((job + 1)); do ask "$j" 2>&1 | tail -1; done)"

# --- comment=progress -----------------------------------------------------------------------------------------
within 120 is_idle
world() { # ends_well waits for it
    ctl env PATH="$own:$PATH" HOROVOD_STALL_CHECK_TIME_SECONDS=1 srun -Q --hvd=comment=progress "$@" >"$RUN/comment-world.log" 2>&1 &
    # shellcheck disable=SC2034
    world=$!
}
comment_has() { [[ $(comment_of "$job") == *"$1"* ]]; }
shows() { # NAME TEXT
    if within 180 comment_has "$2"; then ok "$1"; else not_ok "$1" "$(comment_of "$job"; cat "$RUN/comment-world.log")"; fi
}
world -N2 -n4 --ntasks-per-node=2 --comment=mine "$own/launch-world" 20 "$go"
within 120 job_of_world
ctl sbatch -Q -H -N1 -o /dev/null --wrap true
held=$(last_job)
has 'hvd-status: a job that waits' "$(ask "$held" 2>&1)" "Slurm job $held is PENDING: it has no ranks yet (JobHeldUser)"
ctl scancel "$held"
shows 'comment=progress: what hvd-status would say, without it' "mine | hvd $job.0: Stalled: 4 ranks; rank 1 (host node1"
ends_well || not_ok 'comment=progress: the step ends as ever' "$(cat "$RUN/comment-world.log")"
within 120 is_idle
slurmd=$(pgrep -P "$(cat "$RUN/node2.pid")" -x slurmd)
patience() { # SECONDS SECONDS: of srun with a slurmd, and of slurmctld
    sed -i "s/^MessageTimeout=.*/MessageTimeout=$1/; s/^SlurmdTimeout=.*/SlurmdTimeout=$2/" "$RUN/etc/slurm.conf"
    ctl scontrol reconfigure
}
patience 200 600
kill -STOP "$slurmd"
world -N2 -n4 --ntasks-per-node=2 bash -c "until [ -e $go ]; do read -rt 1 <> <(:); done"
within 120 job_of_world
shows 'comment=progress: tasks that wait for those of a node' "hvd $job.0: Meeting: 2 of 4 tasks are ready"
has 'hvd-status: the same' "$(ask "$job" 2>&1)" 'Meeting: 1 of 2 workers are present'
kill -CONT "$slurmd"
patience 30 60
shows 'comment=progress: ranks that have not called hvd.init' "hvd $job.0: Starting: 0 of 4 ranks have called hvd.init()"
if ends_well; then ok 'comment=progress: the step ends as ever'; else not_ok 'comment=progress: the step ends as ever' "$(cat "$RUN/comment-world.log")"; fi
within 60 no_pages
is 'nothing of it is left' '' "$(pgrep -f "$own/hvd-status")"
