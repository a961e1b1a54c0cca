#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# spank_hvd.so on a real Slurm of two nodes. TAP. Needs root, Slurm and munge (tests/setup/deb.sh slurm), a built
# plugin (BUILD=... make), and for the training tests the installed tree (make stage) and python3-torch.
# shellcheck disable=SC2016,SC2001 # what is in single quotes is expanded by the tasks
set -uo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/slurm/suite.sh
. "$HERE/suite.sh"
cluster 2

# --- layouts ------------------------------------------------------------------------------------
is 'two tasks on each of two nodes' "0/4 local 0/2 cross 0/2 node1=node1
1/4 local 1/2 cross 0/2 node1=node1
2/4 local 0/2 cross 1/2 node2=node2
3/4 local 1/2 cross 1/2 node2=node2" "$(srun --hvd -N2 -n4 --ntasks-per-node=2 "$RUN/place" 2>&1 | sorted)"

is 'ragged 5,1: the second node has a peer for local rank 0 only' "0/6 local 0/5 cross 0/2 node1=node1
1/6 local 1/5 cross 0/1 node1=node1
2/6 local 2/5 cross 0/1 node1=node1
3/6 local 3/5 cross 0/1 node1=node1
4/6 local 4/5 cross 0/1 node1=node1
5/6 local 0/1 cross 1/2 node2=node2" "$(srun --hvd -N2 -n6 "$RUN/place" 2>&1 | sorted)"

is 'cyclic: ranks are those of Slurm' "0/4 local 0/2 cross 0/2 node1=node1
1/4 local 0/2 cross 1/2 node2=node2
2/4 local 1/2 cross 0/2 node1=node1
3/4 local 1/2 cross 1/2 node2=node2" "$(srun --hvd -N2 -n4 --ntasks-per-node=2 --distribution=cyclic "$RUN/place" 2>&1 | sorted)"

printf 'node2\nnode1\nnode2\n' >"$RUN/arbitrary"
is 'arbitrary: rank 0 on the second node' "0/3 local 0/2 cross 1/2 node2=node2
1/3 local 0/1 cross 0/2 node1=node1
2/3 local 1/2 cross 0/1 node2=node2" "$(SLURM_HOSTFILE=$RUN/arbitrary srun --hvd -n3 --distribution=arbitrary "$RUN/place" 2>&1 | sorted)"
is 'arbitrary: MASTER_ADDR is the node of rank 0' "node2" \
    "$(SLURM_HOSTFILE=$RUN/arbitrary srun --hvd -n3 --distribution=arbitrary bash -c 'echo $MASTER_ADDR' 2>&1 | sort -u)"

is 'one node' "0/3 local 0/3 cross 0/1 node1=node1
1/3 local 1/3 cross 0/1 node1=node1
2/3 local 2/3 cross 0/1 node1=node1" "$(srun --hvd -N1 -n3 -w node1 "$RUN/place" 2>&1 | sorted)"

is 'one task' "0/1 local 0/1 cross 0/1 node2=node2" "$(srun --hvd -n1 -w node2 "$RUN/place" 2>&1)"

is 'heterogeneous step: one world over both components' "0/5 local 0/2 cross 0/2 node1=node1
1/5 local 1/2 cross 0/2 node1=node1
2/5 local 0/3 cross 1/2 node2=node2
3/5 local 1/3 cross 1/2 node2=node2
4/5 local 2/3 cross 0/1 node2=node2" "$(srun --hvd -w node1 -n2 "$RUN/place" : -w node2 -n3 "$RUN/place" 2>&1 | sorted)"

cat >"$RUN/task" <<'T'
#!/usr/bin/python3
import json, os, re
c = json.loads(os.environ.get("TF_CONFIG", "{}"))
hosts = {role: [re.sub(r":2\d{4}$", "", h) for h in all] for role, all in c.get("cluster", {}).items()}
print(os.environ["HOROVOD_RANK"], *c.get("task", {}).values(), len({h for v in c.get("cluster", {}).values() for h in v}), hosts)
T
chmod +x "$RUN/task"
all="4 {'chief': ['node1'], 'worker': ['node1', 'node2'], 'ps': ['node2']}"
is 'framework=tf-ps: TF_CONFIG counts tasks node by node' "0 chief 0 $all
1 worker 1 $all
2 worker 0 $all
3 ps 0 $all" "$(srun --hvd=framework=tf-ps -N2 -n4 --ntasks-per-node=2 --distribution=cyclic "$RUN/task" 2>&1 | sorted)"
is 'without framework there is no TF_CONFIG, also not an outer one' "0 0 {}" \
    "$(TF_CONFIG='{"task": {"type": "ps", "index": 0}}' srun --hvd -n1 "$RUN/task" 2>&1)"
has 'framework=tf-ps with two tasks is refused' "$(srun --hvd=framework=tf-ps -n2 "$RUN/task" 2>&1)" \
    'framework tf-ps needs at least 3 processes (one chief, one worker, 1 ps), not 2'

# --- jobs ---------------------------------------------------------------------------------------
cat >"$RUN/job.sh" <<J
#!/bin/bash
#SBATCH --hvd
env | grep -E '^(HOROVOD|HVD)_' && echo "the batch script itself must see nothing"
for i in 1 2; do
    srun -Q -n2 bash -c 'echo \$HOROVOD_RANK/\$HOROVOD_SIZE \$HVD_JOB_ID | sed s/slurm.[0-9]*/slurm/'
done
J
is '#SBATCH --hvd: every srun of the job is a world of its own' "0/2 slurm.0
0/2 slurm.1
1/2 slurm.0
1/2 slurm.1" "$(ctl sbatch -Q --wait -N2 -n2 -o "$RUN/job.out" "$RUN/job.sh" 2>&1; sort "$RUN/job.out")"

is 'salloc --hvd forwards to srun' "0/2
1/2" "$(ctl salloc -Q --hvd -N2 -n2 srun -Q bash -c 'echo $HOROVOD_RANK/$HOROVOD_SIZE' 2>&1 | sort)"

# --- the contract beside the ranks ----------------------------------------------------------------
out=$(srun --hvd -N2 -n2 bash -c 'echo "$(stat -c "%a %U" "$HVD_TOKEN_FILE" "$(dirname "$HVD_TOKEN_FILE")" | tr "\n" " ")$(tr "\n" " " <"$HVD_HOSTFILE")"' 2>&1 | sort -u)
is 'token file and directory are readable by the user; hostfile of the whole step' '600 root 700 root node1 slots=1 node2 slots=1 ' "$out"
is 'both nodes have the same token' 1 "$(srun --hvd -N2 -n2 bash -c 'cat "$HVD_TOKEN_FILE"' | sort -u | wc -l)"
is 'each step has another token' 2 "$({ srun --hvd -n1 bash -c 'cat "$HVD_TOKEN_FILE"'; srun --hvd -n1 bash -c 'cat "$HVD_TOKEN_FILE"'; } | sort -u | wc -l)"
is 'the token is in no environment value and no argument' '' \
    "$(srun --hvd -n1 bash -c 't=$(cat "$HVD_TOKEN_FILE"); env | grep -F "$t"; tr "\0" "\n" </proc/$PPID/environ | grep -F "$t"; tr "\0" "\n" </proc/$PPID/cmdline | grep -F "$t"; env | grep SLURM_HVD; true' 2>&1)"
token=$(srun --hvd -n1 bash -c 'cat "$HVD_TOKEN_FILE"')
is 'the token is in no log' '' "$(grep -rlF "$token" "$RUN/log" "$RUN/state" 2>&1)"
is 'nothing is left in the run directory' '' "$(within 60 rmdir "$RUNDIR" 2>/dev/null || ls -R "$RUNDIR")"
out=$(srun --hvd -N2 -n2 bash -c 'timeout 30 bash -c "exec 3<>/dev/tcp/$HVD_RENDEZVOUS_ADDR/$HVD_RENDEZVOUS_PORT" && echo reached' 2>&1 | sort | uniq -c | tr -s ' ')
is 'the rendezvous in srun is reachable from both nodes' ' 2 reached' "$out"
is 'a set of an outer launcher does not survive' '0 - -' \
    "$(ctl env RANK=7 OMPI_COMM_WORLD_RANK=7 HOROVOD_RANK=9 OMPI_COMM_WORLD_SIZE=9 srun -Q --hvd -n1 bash -c 'echo $HOROVOD_RANK ${OMPI_COMM_WORLD_RANK:--} ${OMPI_COMM_WORLD_SIZE:--}' 2>&1)"
is 'Slurm'"'"'s own variables stay' '1 2' "$(srun --hvd -N2 -n2 bash -c 'echo $SLURM_PROCID $SLURM_NTASKS' | sort | tail -1)"
is 'the runtime comes first in PATH and PYTHONPATH' "$RUN/empty/python:/mine $RUN/empty/bin" \
    "$(ctl env PYTHONPATH=/mine srun -Q --hvd -n1 bash -c 'echo $PYTHONPATH ${PATH%%:*}' 2>&1)"
is 'a program sees its own name and arguments' "bash -c tr '\0' ' ' </proc/\$\$/cmdline a b" \
    "$(srun --hvd -n1 bash -c "tr '\0' ' ' </proc/\$\$/cmdline" a b 2>&1 | sed 's/ $//; s,^/[a-z/]*/bash,bash,')"
printf '0 echo first\n1 echo second\n' >"$RUN/multi"
is '--multi-prog' $'first\nsecond' "$(srun --hvd -n2 --multi-prog "$RUN/multi" 2>&1 | sort)"
is '--export=NONE' '0/2
1/2' "$(srun --hvd --export=NONE -N2 -n2 /bin/bash -c 'echo $HOROVOD_RANK/$HOROVOD_SIZE' 2>&1 | sort)"
is 'timeout= and iface= reach the task' '90 eth0' \
    "$(srun --hvd=timeout=90,iface=eth0 -n1 bash -c 'echo $HOROVOD_START_TIMEOUT $HOROVOD_GLOO_IFACE' 2>&1)"
has 'verbose says where and how many' "$(srun --hvd=verbose -N2 -n2 true 2>&1)" 'rendezvous for 2 tasks' 'node1: 1 of 2 tasks here' 'node2: 1 of 2 tasks here'

# --- users ----------------------------------------------------------------------------------------
is 'an unprivileged user' '0/2 640 root
1/2 640 root' "$(UID_GID=65534:65534 srun --hvd -N2 -n2 bash -c 'echo $HOROVOD_RANK/$HOROVOD_SIZE $(stat -c "%a %U" $HVD_TOKEN_FILE)' 2>&1 | sort)"
is 'another user cannot read the token' 'Permission denied' \
    "$(srun --hvd -n1 bash -c 'setpriv --reuid=65534 --clear-groups cat $HVD_TOKEN_FILE 2>&1 | grep -o "Permission denied"' 2>&1)"

# --- mistakes -------------------------------------------------------------------------------------
out=$(srun --hvd=tiemout=3 -n1 echo ran 2>&1)
is 'a bad key ends srun' 255 "$(srun --hvd=tiemout=3 -n1 true 2>/dev/null; echo $?)"
has 'a bad key is named, with the nearest' "$out" '"tiemout" is not a key; the nearest is timeout'
has 'a bad value is named' "$(srun --hvd=timeout=soon -n1 true 2>&1)" '--hvd: timeout=soon is not a duration'
has 'sbatch refuses it at submission' "$(ctl sbatch --hvd=nope "$RUN/job.sh" 2>&1)" '"nope" is not a key'
plugstack rundir=/x
is 'a mistake in plugstack.conf does not touch other steps' 'fine' "$(srun -n1 echo fine 2>&1)"
has 'a mistake in plugstack.conf is named when --hvd is used' "$(srun --hvd -n1 true 2>&1)" '"rundir=/x" is not an argument' 'run_dir=PATH'
plugstack "${conf[0]}" dir=/no/such/dir
out=$(srun --hvd -N2 -n4 --ntasks-per-node=2 echo ran 2>&1)
rc=$?
has 'a missing runtime directory is named' "$out" 'dir=/no/such/dir' 'No such file'
is 'and said once, no task runs, srun fails' '1 0 1' \
    "$(grep -c 'dir=/no/such/dir' <<<"$out") $(grep -c '^ran' <<<"$out") $([ $rc -ne 0 ] && echo 1)"
plugstack "${conf[@]}"
out=$(ctl env SLURM_HVD_STEP=MUNGE:forged: srun -Q --hvd -n1 bash -c 'echo ran $HOROVOD_RANK' 2>&1)
is 'a ticket of the environment is replaced' 'ran 0' "$out"

# --- without --hvd ----------------------------------------------------------------------------------
is 'a step without --hvd sees nothing of us' '' "$(srun -N2 -n2 bash -c 'env | grep -E "HOROVOD|HVD"; true' 2>&1)"
is 'a step without --hvd continues when a task fails' 'done' \
    "$(srun -N2 -n2 bash -c '[ $SLURM_PROCID = 0 ] && exit 3; read -rt 1 <> <(:); echo done' 2>/dev/null)"

# --- keys, rules of a site, messages ----------------------------------------------------------------
# shellcheck source=tests/slurm/keys.sh
. "$HERE/keys.sh"

# --- set-up that fails, and the directory of a step -------------------------------------------------
# shellcheck source=tests/slurm/closed.sh
. "$HERE/closed.sh"
# shellcheck source=tests/slurm/preflight.sh
. "$HERE/preflight.sh"
# shellcheck source=tests/slurm/rundir.sh
. "$HERE/rundir.sh"

# --- failures -----------------------------------------------------------------------------------------
long=300.$$ # no other run has the same
ends() { # NAME COMMAND TEXT...: rank 1 runs COMMAND, the other ranks would stay for five minutes
    local name=$1 cmd=$2 start=$SECONDS out
    shift 2
    out=$(srun --hvd -N2 -n4 bash -c "[ \$HOROVOD_RANK = 1 ] && { $cmd; }; exec sleep $long" 2>&1)
    local rc=$?
    if [ $((SECONDS - start)) -ge 150 ] || [ $rc -eq 0 ]; then
        not_ok "$name" "took $((SECONDS - start)) s, srun's exit code $rc"$'\n'"$out"
    else
        has "$name" "$out" "$@"
    fi
}
ends 'a task exits 3: the step ends at once and srun names it' 'exit 3' 'task 1: Exited with exit code 3'
ends 'a task is killed: the step ends at once and srun names it' 'kill -9 $$' 'task 1: Killed'
no_sleeper() { ! grep -lzxF "$long" /proc/[0-9]*/cmdline >/dev/null 2>&1; }
if within 60 no_sleeper; then ok 'no task is left'; else not_ok 'no task is left' "$(grep -lzxF "$long" /proc/[0-9]*/cmdline)"; fi
out=$(srun --hvd --kill-on-bad-exit=0 -N2 -n2 bash -c '[ $HOROVOD_RANK = 1 ] && exit 3; read -rt 1 <> <(:); echo done' 2>/dev/null)
is 'the user may say --kill-on-bad-exit=0' 'done' "$out"

# --- GPUs -----------------------------------------------------------------------------------------
# shellcheck source=tests/slurm/gpu.sh
. "$HERE/gpu.sh"

# --- status ---------------------------------------------------------------------------------------
# shellcheck source=tests/slurm/status.sh
. "$HERE/status.sh"
# shellcheck source=tests/slurm/comment.sh
. "$HERE/comment.sh"
# shellcheck source=tests/slurm/check.sh
. "$HERE/check.sh"

# --- without the plugin: found, not started, by us -----------------------------------------------
: >"$RUN/etc/plugstack.conf"
# shellcheck source=tests/slurm/found.sh
. "$HERE/found.sh"

# --- training -----------------------------------------------------------------------------------------
train="$ROOT/runtime/examples/train_digits.py"
why=
[ -d "$RUN/stage/python" ] || why="no installed tree in $STAGE (make stage)"
[ -f "$train" ] || why="runtime/examples/train_digits.py is not there"
/usr/bin/python3 -c 'import torch, sklearn' 2>/dev/null || why="python3-torch or python3-sklearn is not installed (tests/setup/deb.sh torch)"
accuracy_ok() { # OUTPUT: the last number after "accuracy" is at least 0.97
    awk '/accuracy/ {for (i = 1; i <= NF; i++) if ($i ~ /^[01]\.[0-9]+/) a = $i} END {exit !(a >= 0.97)}' <<<"$1"
}
trains() { # NAME ARGS...
    local name=$1 out rc
    shift
    if [ -n "$why" ]; then skip "$name" "$why"; return; fi
    out=$(timeout 500 "$HERE/on" ctl srun -Q "$@" -N2 -n4 --ntasks-per-node=2 /usr/bin/env OMP_NUM_THREADS=1 /usr/bin/python3 "$RUN/train_digits.py" 2>&1)
    rc=$?
    if [ $rc -eq 0 ] && accuracy_ok "$out"; then ok "$name"; else not_ok "$name" "exit code $rc"$'\n'"$(tail -30 <<<"$out")"; fi
}
[ -f "$train" ] && cp "$train" "$RUN/train_digits.py"
plugstack "run_dir=$RUNDIR" "dir=$RUN/stage"
trains 'srun --hvd trains the demo on 2 nodes x 2 tasks' --hvd
# shellcheck source=tests/slurm/elastic.sh
. "$HERE/elastic.sh"
# shellcheck source=tests/slurm/box.sh
. "$HERE/box.sh"
plugstack "run_dir=$RUNDIR" "dir=$RUN/stage"
# shellcheck source=tests/slurm/submit.sh
. "$HERE/submit.sh"
servers='a parameter server, a chief and two workers train on two nodes, and all end'
if [ -n "$why" ]; then
    skip "$servers" "$why"
else
    cp "$ROOT/tests/python/strategies/parameter_server.py" "$RUN/parameter_server.py"
    tf=$("$ROOT/tests/setup/venv.sh" tf) keras=$(cd "$("$ROOT/tests/setup/venv.sh" keras2)" && echo "$PWD"/lib/python3*/site-packages)
    out=$(timeout 500 "$HERE/on" ctl /usr/bin/env CUDA_VISIBLE_DEVICES=-1 PYTHONPATH="$keras" srun -Q --hvd=framework=tf-ps -N2 -n4 \
        --ntasks-per-node=2 "$tf/bin/python" -m horovod.compat.strategies "$RUN/parameter_server.py" 2>&1)
    has "$servers" "$out code $?" '5 steps, val_loss' 'evaluated: 0.' 'tf.keras is tf_keras' ' code 0'
fi
dies() { # NAME HOW SRUN-OPTION WORD...: the ranks' last words
    local name=$1 how=$2 opt=$3 out rc start=$SECONDS
    shift 3
    if [ -n "$why" ]; then skip "$name" "$why"; return; fi
    out=$(timeout 300 "$HERE/on" ctl srun -Q "$opt" --kill-on-bad-exit=0 -N2 -n4 --ntasks-per-node=2 /usr/bin/python3 "$RUN/die.py" "$how" 2>&1)
    rc=$?
    if [ $rc -eq 0 ] || [ $rc -eq 124 ]; then
        not_ok "$name" "exit code $rc after $((SECONDS - start)) s"$'\n'"$(tail -30 <<<"$out")"
    else
        has "$name" "$(grep -E 'Error|srun:' <<<"$out" | sort | uniq -c | tr -s ' ')" "$@"
    fi
}
cp "$HERE/die.py" "$RUN/die.py"
dies 'a rank is killed in training: the three other ranks name it and its host' kill --hvd \
    ' 3 _hvd.exceptions.HorovodInternalError: rank 1 (host node1' 'task 1: Killed'
dies 'an uncaught exception: the three other ranks name it, and exit with a code of their own' raise --hvd \
    ' 3 _hvd.exceptions.HorovodInternalError: rank 1 (host node1' ') ended: ValueError: bad batch (die.py:' \
    'task 1: Exited with exit code 1' 'Exited with exit code 6'
shows() { # NAME HOW CODE WORD: srun, which stops the other tasks, ends with CODE; its line of task 1
    local name=$1 how=$2 code=$3 word=$4 out rc
    if [ -n "$why" ]; then skip "$name" "$why"; return; fi
    out=$(timeout 300 "$HERE/on" ctl srun -Q --hvd -N2 -n4 --ntasks-per-node=2 /usr/bin/python3 "$RUN/die.py" "$how" 2>&1)
    rc=$?
    if [ $rc -eq "$code" ]; then
        has "$name" "$(grep 'srun:' <<<"$out")" "$word"
    else
        not_ok "$name" "exit code $rc"$'\n'"$(tail -30 <<<"$out")"
    fi
}
shows "sys.exit(7) in a rank: 7 is srun's code" exit 7 'task 1: Exited with exit code 7'
shows "a fault in a rank: its signal is srun's code" fault 139 'task 1: Segmentation fault'
shows "an uncaught exception: srun's code is that of a consequence, its lines have the first" raise 6 \
    'task 1: Exited with exit code 1'
dies 'a rank exits before hvd.init: the other ranks name the rank they waited for' before --hvd=timeout=30 \
    'for rank 1 of 4' 'task 1: Exited with exit code 3'
: >"$RUN/etc/plugstack.conf"
PYTHONPATH=$RUN/stage/python trains 'bare srun without the plugin trains too'

echo "1..$n"
[ "$failed" -eq 0 ]
