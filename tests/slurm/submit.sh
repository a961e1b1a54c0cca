# shellcheck shell=bash disable=SC2154,SC2016 # run.sh sources this: its functions and variables
# SPDX-License-Identifier: Apache-2.0
# hvd-submit on the real Slurm: a job that trains, one that fails and is requeued, hostile values, hold.
submit_dir=$RUN/submit
rm -rf "$submit_dir" && install -d "$submit_dir"
cp "$BUILD/plain/bin/hvd-submit" "$submit_dir/hvd-submit" # a copy: the login host has its own /tmp
hvd_submit() { timeout 500 "$HERE/on" ctl "$submit_dir/hvd-submit" "$@"; }

# submit_job NAME POLICY SLOTS WORDS ENV: writes NAME.yaml, of two workers
submit_job() {
    cat >"$submit_dir/$1.yaml" <<Y
apiVersion: ringmaster.dev/v1beta1
kind: HorovodJob
metadata: {name: $1}
spec:
  slotsPerWorker: $3
  runPolicy: {$2}
  replicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: t
            image: none
            command: [$4]
            env: [$5]
            workingDir: $submit_dir
            resources: {requests: {cpu: 100m, memory: 512Mi}}
Y
}
submit_state() { ctl scontrol show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p" | head -1; }
# JOB: it has ended. Slurm holds a requeued job for two minutes; this ends the hold, but not in the same second,
# in which Slurm refuses the job: "credential revoked"
submit_ended() {
    local start
    case $(submit_state "$1" JobState) in
        PENDING)
            start=$(date -d "$(submit_state "$1" StartTime)" +%s 2>/dev/null) && [ $((start - $(date +%s))) -gt 10 ] \
                && ctl scontrol update JobId="$1" StartTime=now+5
            ;;
        COMPLETED | CANCELLED | FAILED | TIMEOUT | NODE_FAIL) return 0 ;;
    esac
    return 1
}
submit_run() { # NAME: submits NAME.yaml and waits for the end; sets job
    local out
    out=$(hvd_submit "$submit_dir/$1.yaml" -- -o "$submit_dir/$1.out" 2>/dev/null)
    job=${out##* }
    within 240 submit_ended "$job"
}
submit_starts() { grep -c "^start" "$submit_dir/$1.log"; }

if [ -n "$why" ]; then
    skip 'hvd-submit: a HorovodJob trains on 2 nodes x 2 ranks' "$why"
else
    submit_job train '' 2 "/usr/bin/python3, $RUN/train_digits.py" '{name: OMP_NUM_THREADS, value: "1"}'
    out=$(hvd_submit "$submit_dir/train.yaml" -- --wait -o "$submit_dir/train.out" 2>&1)
    rc=$?
    log=$(cat "$submit_dir/train.out")
    if [ $rc -eq 0 ] && accuracy_ok "$log"; then
        has 'hvd-submit: a HorovodJob trains on 2 nodes x 2 ranks' "$out $log" 'Submitted batch job' 'all 4 workers hold identical'
    else
        not_ok 'hvd-submit: a HorovodJob trains on 2 nodes x 2 ranks' "exit code $rc"$'\n'"$out"$'\n'"$(tail -30 <<<"$log")"
    fi
fi

count='[ $HOROVOD_RANK = 0 ] || exec sleep 300; echo start >>$0.log; exit $((HVD_GENERATION + 3))'
submit_job again 'backoffLimit: 2' 1 "sh, -c, '$count', $submit_dir/again" ''
submit_run again
is 'a failing job is requeued backoffLimit times' '3 starts FAILED' "$(submit_starts again) starts $(submit_state "$job" JobState)"
has 'its log has all starts' "$(cat "$submit_dir/again.out")" 'task 0: Exited with exit code 3' 'restart 1' \
    'task 0: Exited with exit code 4' 'restart 2' 'task 0: Exited with exit code 5'

submit_job rule 'backoffLimit: 5, failureRules: [{action: Fail, onExitCodes: {operator: In, values: [4]}}]' 1 \
    "sh, -c, '$count', $submit_dir/rule" ''
submit_run rule
is 'a failure rule ends the job, by the code of the first task that failed' '2 starts FAILED 4:0' \
    "$(submit_starts rule) starts $(submit_state "$job" JobState) $(submit_state "$job" ExitCode)"

submit_job cancelled 'backoffLimit: 2' 1 "sh, -c, '${count%exit*}trap \"exit 3\" TERM; sleep 300 & wait', $submit_dir/cancelled" ''
out=$(hvd_submit "$submit_dir/cancelled.yaml" -- -o "$submit_dir/cancelled.out" 2>/dev/null)
job=${out##* }
within 120 test -s "$submit_dir/cancelled.log"
ctl scancel "$job"
within 120 submit_ended "$job"
is 'a cancelled job is not requeued' '1 starts CANCELLED' "$(submit_starts cancelled) starts $(submit_state "$job" JobState)"

words='printf, "%s|", "it'"'"'s", "$(touch hacked)", "`touch hacked`", "a\n#SBATCH --nodes=1\nb", "\\", "$HOME", "$(X)", "", "--", "*"'
submit_job hostile 'suspend: true' 1 "sh, -c, 'test \$HOROVOD_RANK = 1 || exec \"\$@\"', sh, $words" '{name: X, value: "\"; exit 1 #"}'
hvd_submit --dry-run "$submit_dir/hostile.yaml" 2>/dev/null >"$submit_dir/hostile.sbatch"
out=$(ctl sbatch -o "$submit_dir/hostile.out" "$submit_dir/hostile.sbatch" 2>&1)
job=${out##* }
is 'a suspended job is held' 'PENDING JobHeldUser' "$(submit_state "$job" JobState) $(submit_state "$job" Reason)"
ctl scontrol release "$job"
within 120 submit_ended "$job"
is 'the output of --dry-run is a batch script; values reach the program unchanged' "it's|\$(touch hacked)|\`touch hacked\`|a
#SBATCH --nodes=1
b|\\|\$HOME|\"; exit 1 #||--|*|" "$(cat "$submit_dir/hostile.out")"
is 'no value is run as code' '' "$(ls "$submit_dir/hacked" 2>/dev/null)"
