# shellcheck shell=bash disable=SC2154,SC2016 # run.sh sources this: its functions and variables; tasks expand
# SPDX-License-Identifier: Apache-2.0
# hvd-status: what a step does, asked from the login host; and why some cannot be asked.
own=$RUN/own # copies: nodes have their own /tmp
install -d "$own" && cp "$BUILD"/plain/bin/{hvd-agent,launch-world} "$own/" && ln -sfn hvd-agent "$own/hvd-status"
ask() { ctl "$own/hvd-status" "$@"; }
plugstack "${conf[@]}"
within 120 is_idle
go=$RUN/status-go
world() { # SRUN-OPTION...: ranks of which rank 1 waits for the file $go
    ctl env HOROVOD_STALL_CHECK_TIME_SECONDS=1 srun -Q --hvd "$@" "$own/launch-world" 20 "$go" >"$RUN/status-world.log" 2>&1 &
    world=$!
}
job_of_world() { job=$(ctl squeue -h -t RUNNING -o %A | head -1) && [ -n "$job" ]; }
ends_well() { # the world
    : >"$go"
    wait "$world"
    rm -f "$go"
}
step_runs() { ctl squeue -h -s -j "$job" -o %i 2>/dev/null | grep -qx "$job\.0"; }
stalls() { # rank 1 is named with its stack
    has_status "$(ask --json "$job.0" 2>&1)" '"state":"Stalled"' '"hasStacks":true'
}
has_status() {
    local text=$1 w
    shift
    for w in "$@"; do [[ $text == *"$w"* ]] || return 1; done
}
world -N2 -n4 --ntasks-per-node=2
within 120 job_of_world && within 120 step_runs
if within 180 stalls; then ok 'hvd-status: a stall and its cause'; else not_ok 'hvd-status: a stall and its cause' "$(ask --json "$job" 2>&1; cat "$RUN/status-world.log")"; fi
out=$(ask --verbose "$job" 2>&1)
is 'hvd-status: the exit code is 0, and nothing but the report is printed' "0 Slurm job $job, step 0, on node[1-2]" "$? $(head -1 <<<"$out")"
has 'hvd-status: state, verdict, table of ranks and stacks' "$out" 'Stalled: 4 ranks on 2 workers' \
    'Stalled: rank 1 (host node1, pid ' 'has not submitted tensor "tensor/0"' 'RANK      PID STATE' 'usleep'
is 'hvd-status: each rank is in the table' '0 1 2 3' "$(awk '$3 == "InWorld" {print $1}' <<<"$out" | tr '\n' ' ' | sed 's/ $//')"
is 'hvd-status --json: one object, the times add up to the age of the step' 'Stalled 4 2 2 True' "$(ask --json "$job" 2>/dev/null | python3 -c '
import datetime, json, sys
r = json.loads(sys.stdin.read())
at, since = (datetime.datetime.fromisoformat(r[k].rstrip("Z")) for k in ("time", "started"))
near = abs((at - since).total_seconds() - sum(r["seconds"].values())) < 3
print(r["state"], r["ranks"], r["workers"], r["workersPresent"], near)' 2>&1)"
has 'hvd-status --line: one line' "$(ask --line "$job" 2>&1)" 'Stalled: 4 ranks; rank 1 (host node1'
is 'hvd-status: only the owner may ask' "hvd-status: job $job is user root's: only its owner can ask it 1" \
    "$(UID_GID=65534:65534 ask "$job" 2>&1) $(UID_GID=65534:65534 ask "$job" >/dev/null 2>&1; echo $?)"
is 'hvd-status: a step that is not there' "hvd-status: job $job has no step 7 that runs" "$(ask "$job.7" 2>&1)"
has 'hvd-status: a job that never was' "$(ask 999999 2>&1)" 'hvd-status: job 999999 does not exist, or ended long ago'
is 'hvd-status: a word that is no job' 2 "$(ask x >/dev/null 2>&1; echo $?)"
ask --watch --json "$job" >"$RUN/status-watch" 2>"$RUN/status-watch.err" &
watch=$!
watched() { [ "$(grep -c '"state"' "$RUN/status-watch")" -ge 2 ]; }
within 120 watched
if ends_well; then ok 'hvd-status: a step that is watched ends as ever'; else not_ok 'hvd-status: a step that is watched ends as ever' "$(cat "$RUN/status-world.log")"; fi
wait "$watch"
is 'hvd-status --watch: ends with the step' "0 hvd-status: step $job.0 has ended" "$? $(grep -o 'hvd-status: step.*' "$RUN/status-watch.err")"
has_ended() { ctl scontrol show job "$job" | grep -q JobState=COMPLETED; } # COMPLETING before that
within 120 has_ended
has 'hvd-status: a job that has ended' "$(ask "$job" 2>&1)" "hvd-status: job $job is COMPLETED: only a running job has ranks"
no_pages() { ! "$HERE/on" node1 find /dev/shm -name 'hvd_step.*' | grep -q .; }
if within 60 no_pages; then ok 'no page of a step that has ended is left'; else not_ok 'no page of a step that has ended is left' "$(ctl ls /dev/shm)"; fi

# --- an unprivileged user, and a step without --hvd -------------------------------------------------------
within 120 is_idle
UID_GID=65534:65534 world -N2 -n4 --distribution=cyclic
within 120 job_of_world && within 120 step_runs
has 'hvd-status: an unprivileged user, ranks dealt in turn' "$(UID_GID=65534:65534 ask "$job" 2>&1)" ': 4 ranks on 2 workers' 'rank 1 (host node2'
ends_well
within 120 is_idle
ctl srun -Q -N1 sleep 300 >/dev/null 2>&1 &
plain=$!
within 120 job_of_world && within 120 step_runs
is 'hvd-status: a step without --hvd' "hvd-status: step $job.0 has no ranks of srun --hvd" "$(ask "$job" 2>&1)"
ctl scancel "$job"
wait "$plain"

# --- a heterogeneous job: both components, by the number of either -----------------------------------------
within 120 is_idle
ctl env HOROVOD_STALL_CHECK_TIME_SECONDS=1 srun -Q --hvd -w node1 -n1 "$own/launch-world" 20 "$go" : -w node2 -n3 "$own/launch-world" 20 "$go" \
    >"$RUN/status-world.log" 2>&1 &
world=$!
component() { job=$(ctl squeue -h -t RUNNING -o '%A %i' | sed -n "s/ [0-9]*+$1\$//p") && [ -n "$job" ]; } # INDEX
examined() { # the stacks of all ranks
    out=$(ask --verbose "$job" 2>&1)
    has_status "$out" 'Stalled: rank 1 (host node2, pid ' usleep && [[ $out != *'not examined'* ]]
}
for index in 0 1; do
    within 120 component $index && within 120 step_runs && within 180 examined
    has "hvd-status: component $index of a heterogeneous job: all ranks, and all stacks" \
        "$out$([[ $out == *'not examined'* ]] || echo ' all examined')" \
        'Slurm job ' ': 4 ranks on 2 workers' 'Stalled: rank 1 (host node2, pid ' usleep ' all examined'
    is "hvd-status: component $index: each rank is in the table" '0 1 2 3' \
        "$(awk '$3 == "InWorld" {print $1}' <<<"$out" | tr '\n' ' ' | sed 's/ $//')"
done
ends_well

# --- a node that does not answer: its slurmd stands still ------------------------------------------------
within 120 is_idle
world -N2 -n4 --ntasks-per-node=2
within 120 job_of_world && within 180 stalls
slurmd=$(pgrep -P "$(cat "$RUN/node2.pid")" -x slurmd)
kill -STOP "$slurmd"
start=$SECONDS
out=$(ask "$job" 2>&1)
rc=$?
kill -CONT "$slurmd"
if [ $rc -eq 1 ] && [ $((SECONDS - start)) -lt 90 ]; then
    has 'hvd-status: a node that does not answer is named in bounded time' "$out" '1 of 2 nodes do not answer: node2' '4 ranks on 2 workers'
else
    not_ok 'hvd-status: a node that does not answer is named in bounded time' "exit code $rc after $((SECONDS - start)) s: $out"
fi
ends_well
