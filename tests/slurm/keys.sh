# shellcheck shell=bash disable=SC2154,SC2016 # run.sh sources this: its functions and variables; tasks expand
# SPDX-License-Identifier: Apache-2.0
# Keys of --hvd from the option, the environment and the job, the rules of a site, and the messages of mistakes.
settings='PATH=/usr/bin:/bin; env | grep -E "^(HOROVOD_(FUSION|CYCLE|LOG_L|TIMELINE)|HVD_(NAN|REP)|SLURM_HVD)" | sort | tr "\n" " "; echo .'
step() { srun -n1 "$@" /bin/bash -c "$settings" 2>&1; }
with() { "$HERE/on" ctl env "$@" srun -Q -n1 /bin/bash -c "$settings" 2>&1; }

is 'keys and variables reach the task' 'HOROVOD_CYCLE_TIME=1 HOROVOD_FUSION_THRESHOLD=67108864 HOROVOD_LOG_LEVEL=DEBUG HOROVOD_TIMELINE=/tmp/a,b HVD_NANCHECK=1 .' \
    "$(step --hvd='timeline="/tmp/a,b",fusion=64,HOROVOD_CYCLE_TIME=1,log-level=debug,nancheck')"
out=$(ctl srun --hvd=help 2>/dev/null)
has '--hvd=help lists the keys and the rules, and runs nothing' "$out code $?" \
    '  fusion=MIB ' '  nancheck ' 'This site (plugstack.conf):' 'code 0'
is 'an option twice: the second adds its keys' 'HOROVOD_FUSION_THRESHOLD=2097152 HVD_NANCHECK=1 .' \
    "$(step --hvd=fusion=1,nancheck --hvd=fusion=2)"
is 'SLURM_HVD is as --hvd' 'HOROVOD_FUSION_THRESHOLD=1048576 SLURM_HVD=fusion=1 .' "$(with SLURM_HVD=fusion=1)"
is 'SLURM_HVD: an option has priority' 'HOROVOD_FUSION_THRESHOLD=2097152 HVD_NANCHECK=1 SLURM_HVD=fusion=1,nancheck .' \
    "$(SLURM_HVD=fusion=1,nancheck step --hvd=fusion=2)"
is '--hvd=off is an ordinary step, also with SLURM_HVD' 'SLURM_HVD=fusion=1 .' "$(SLURM_HVD=fusion=1 step --hvd=off)"
has 'a mistake in SLURM_HVD is named' "$(with SLURM_HVD=colour)" 'hvd: SLURM_HVD: "colour" is not a key'

cat >"$RUN/steps.sh" <<J
#!/bin/bash
export PATH=/usr/bin:/bin
srun -Q -n1 /bin/bash -c '$settings'
srun -Q -n1 --hvd=fusion=9,report /bin/bash -c '$settings'
srun -Q -n1 --hvd=off /bin/bash -c '$settings'
J
chmod +x "$RUN/steps.sh"
job_out() { # SBATCH-OPTION...: what the three steps of the job have; the job's own variables do not matter
    ctl sbatch -Q --wait -n1 -o "$RUN/steps.out" "$@" "$RUN/steps.sh" >/dev/null 2>&1
    sed 's/S[A-Z]*_HVD=[^ ]* //' "$RUN/steps.out"
}
want='HOROVOD_FUSION_THRESHOLD=3145728 HVD_NANCHECK=1 .
HOROVOD_FUSION_THRESHOLD=9437184 HVD_NANCHECK=1 HVD_REPORT=1 .
.'
is "a step's keys are added to the job's, and off switches one off" "$want" "$(job_out --hvd=fusion=3,nancheck)"
is 'SBATCH_HVD is as sbatch --hvd' "$want" "$(SBATCH_HVD=fusion=3,nancheck job_out)"
is 'SBATCH_HVD with --export=NONE, and an option that has priority' "$want" \
    "$(SBATCH_HVD=fusion=1,nancheck job_out --export=NONE --hvd=fusion=3)"
is 'SALLOC_HVD is as salloc --hvd' "$want" "$(SALLOC_HVD=fusion=3,nancheck ctl salloc -Q -n1 "$RUN/steps.sh" 2>&1)"
is 'output=DIR: files of the ranks' 'out 0
out 1
err 1' "$(srun --hvd=output="$RUN/ranks" -N2 -n2 /bin/bash -c 'echo out $HOROVOD_RANK; echo err $HOROVOD_RANK >&2' 2>&1
    cat "$RUN"/ranks/rank.{0,1}/stdout "$RUN/ranks/rank.1/stderr")"
has 'output=DIR that cannot be made' "$(srun --hvd=output=/proc/no -n2 echo ran 2>&1)" 'output: cannot make /proc/no'

# --- the rules of a site --------------------------------------------------------------------------
refused() { # NAME SENTENCE COMMAND...: nothing runs
    local name=$1 sentence=$2 out rc
    shift 2
    out=$("$@" 2>&1)
    rc=$?
    if [ $rc -eq 0 ] || grep -qx ran <<<"$out"; then not_ok "$name" "exit code $rc"$'\n'"$out"; else has "$name" "$out" "$sentence"; fi
}
plugstack "${conf[@]}" default=nancheck force=log-level=info max=fusion=64 deny=timeline
is 'a site sets defaults and forced values' 'HOROVOD_LOG_LEVEL=INFO HVD_NANCHECK=1 .' "$(step --hvd)"
is 'a user changes a default' 'HOROVOD_LOG_LEVEL=INFO HVD_NANCHECK=0 .' "$(step --hvd=nancheck=no)"
refused 'srun refuses more than a limit' 'HOROVOD_FUSION_THRESHOLD=68157440: this site allows at most 67108864' srun --hvd=fusion=65 -n1 echo ran
refused 'srun refuses another value than the forced one' 'this site requires INFO (plugstack.conf: force)' srun --hvd=log-level=debug -n1 echo ran
refused 'sbatch refuses a key that is not allowed' 'HOROVOD_TIMELINE=/t: this site does not allow it' ctl sbatch --hvd=timeline=/t --wrap 'echo ran'
refused 'srun refuses the variable of such a key' 'the environment: HOROVOD_TIMELINE=/t: this site does not' \
    ctl env HOROVOD_TIMELINE=/t srun -Q --hvd -n1 echo ran
refused 'a node refuses a variable that srun does not see' 'hvd: node2: the environment: HOROVOD_TIMELINE=/t: this site does not' \
    srun --hvd --export=ALL,HOROVOD_TIMELINE=/t -n1 -w node2 echo ran
is 'a step without --hvd is not affected' 'HOROVOD_TIMELINE=/t .' "$(with HOROVOD_TIMELINE=/t)"
plugstack "${conf[@]}"
echo "required $RUN/plugin/spank_hvd.so ${conf[*]} deny=nancheck" >"$RUN/plugstack.node2"
"$HERE/on" node2 mount --bind "$RUN/plugstack.node2" "$RUN/etc/plugstack.conf"
refused "a node's own rule counts, where srun has none" 'hvd: node2: --hvd: HVD_NANCHECK=1: this site does not allow it' \
    srun --hvd=nancheck -N2 -n2 echo ran
"$HERE/on" node2 umount "$RUN/etc/plugstack.conf"
plugstack "${conf[@]}" default=colour=red
has 'a mistake in a rule names file, argument and word' "$(srun --hvd -n1 true 2>&1)" 'hvd: plugstack.conf: default: "colour" is not a key'
plugstack "${conf[@]}"

# --- messages -------------------------------------------------------------------------------------
refused '--hvd timeout=5 with a blank' '--hvd timeout=5: there is no command "timeout=5"; did you mean --hvd=timeout=5?' srun -n 1 --hvd timeout=5 -n1 echo ran
printf '#!/bin/bash\necho mine\n' >"$RUN/fusion=1" && chmod +x "$RUN/fusion=1"
is 'a command with the name of a key runs' mine "$(ctl env "PATH=$RUN:$PATH" srun -Q -n1 --hvd fusion=1 2>&1)"
is "a program's own --hvd is its own" '--hvd timeout=5' "$(srun --hvd=fusion=1 -n 1 echo --hvd timeout=5 2>&1)"
is "and in a job with --hvd" '--hvd timeout=5' "$(ctl salloc -Q -n1 --hvd srun -Q -l echo --hvd timeout=5 2>&1 | sed 's/^0: //')"
refused 'in a heterogeneous step' 'did you mean --hvd=timeout=5?' srun --hvd timeout=5 -n1 echo ran : -n1 echo ran
refused 'a key twice' '--hvd: verbose is given twice' srun --hvd=verbose,verbose -n1 echo ran
refused 'elastic is refused' 'HOROVOD_ELASTIC=1: this job keeps its size' srun --hvd=elastic -n1 echo ran
plugstack run_dir="$RUNDIR"
if [ -e /opt/ringmaster/python ]; then
    skip 'a missing runtime is named' '/opt/ringmaster is installed'
else
    out=$(srun --hvd -N2 -n4 /usr/bin/python3 -c '__import__("horovod")' 2>&1)
    has 'a missing runtime is named' "$out" "No module named 'horovod'" 'hvd: there is no runtime in /opt/ringmaster/python'
    is 'and not when the tasks succeed' '' "$(srun --hvd -n2 true 2>&1)"
fi
plugstack "${conf[@]}"
"$HERE/on" ctl mount --bind /dev/null "$RUN/munge/munge.sock"
for p in 'srun -Q -n1 true' 'sbatch --wrap true' 'salloc true'; do
    # shellcheck disable=SC2086 # a program and its arguments
    out=$(ctl ${p/ / --hvd } 2>&1)
    is "munge is down: ${p%% *} prints one line, with what to install" '1 1' \
        "$(grep -c . <<<"$out") $(grep -c 'hvd: munge cannot encrypt.*install the package munge on the login and compute nodes' <<<"$out")"
done
"$HERE/on" ctl umount "$RUN/munge/munge.sock"
