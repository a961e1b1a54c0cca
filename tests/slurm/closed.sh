# shellcheck shell=bash disable=SC2154,SC2016 # run.sh sources this: its functions and variables; tasks expand
# SPDX-License-Identifier: Apache-2.0
# A step with --hvd starts no program on any node unless every node is set up, whether plugstack.conf says
# optional or required. Mistakes are made on node2 alone: its mount namespace has a plugstack.conf of its own.
node_has() { # NODE FILE HIDDEN-FILE: the node sees FILE in place of HIDDEN-FILE
    "$HERE/on" "$1" mount --bind "$2" "$3"
}
node_restore() { # NODE HIDDEN-FILE
    "$HERE/on" "$1" umount "$2"
}
stays_closed() { # NAME TEXT... [-- SRUN-OPTION...]: two nodes, and TEXT is said
    local name=$1 texts=() out rc start=$SECONDS
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do texts+=("$1") && shift; done
    out=$(srun --hvd -N2 -n4 --ntasks-per-node=2 "${@:2}" /bin/bash -c 'echo ran' 2>&1)
    rc=$?
    if [ $rc -eq 0 ] || [ $rc -eq 124 ] || grep -q '^ran' <<<"$out" || [ $((SECONDS - start)) -ge 90 ]; then
        not_ok "$name" "srun's exit code $rc after $((SECONDS - start)) s"$'\n'"$out"
    else
        has "$name" "$out" "${texts[@]}"
    fi
}
node2_stays_closed() { # NAME PLUGSTACK-LINE TEXT... [-- SRUN-OPTION...]: with this line on node2
    local name=$1
    echo "$2" >"$RUN/plugstack.node2"
    shift 2
    node_has node2 "$RUN/plugstack.node2" "$RUN/etc/plugstack.conf"
    stays_closed "$name" "$@"
    node_restore node2 "$RUN/etc/plugstack.conf"
}

so=$RUN/plugin/spank_hvd.so
sed 's,hvd-step,hvd-stop,g' "$so" >"$RUN/plugin/other.so" # of another version
not_run='did not run on this node'
for how in optional required; do
    good="$so ${conf[*]}"
    echo "$how $good" >"$RUN/etc/plugstack.conf"
    is "$how: nothing is wrong" '4' "$(srun --hvd -N2 -n4 --ntasks-per-node=2 echo ran 2>&1 | grep -c '^ran$')"
    node2_stays_closed "$how: a bad run_dir on one node" "$how $so run_dir=/proc/no" \
        'hvd: node2: cannot make /proc/no (plugstack.conf: run_dir)'
    node2_stays_closed "$how: a bad dir on one node" "$how $so run_dir=$RUNDIR dir=/no/such" \
        'hvd: node2: plugstack.conf: dir=/no/such'
    node2_stays_closed "$how: a bad key on one node" "$how $good colour=red" \
        'hvd: node2: plugstack.conf: "colour=red" is not an argument'
    node2_stays_closed "$how: one node fails, and the user says --kill-on-bad-exit=0" "$how $good colour=red" \
        'hvd: node2: plugstack.conf: "colour=red" is not an argument' -- --kill-on-bad-exit=0
    node2_stays_closed "$how: no line for the plugin on one node" '# empty' "$not_run" 'node2: tasks 2-3: Exited'
    # 22.05 leaves the tasks of other nodes alone when a required plugin cannot be loaded on one
    words=("$not_run" 'node2: tasks 2-3: Exited')
    [ $how = optional ] || words=('task 2 launch failed: ' 'hvd: node1: ' 'for ranks 2, 3')
    node2_stays_closed "$how: no file of the plugin on one node" "$how $RUN/plugin/no.so" "${words[@]}" -- --hvd=timeout=5
    node2_stays_closed "$how: another version of the plugin on one node" "$how ${good/spank_hvd.so/other.so}" \
        'hvd: node2: SLURM_HVD_STEP was not created by this version of spank_hvd.so'
    echo '# empty' >"$RUN/plugstack.node1"
    node_has node1 "$RUN/plugstack.node1" "$RUN/etc/plugstack.conf"
    node2_stays_closed "$how: no line for the plugin on any node" '# empty' "$not_run"
    node_restore node1 "$RUN/etc/plugstack.conf"
    echo "$how $so run_dir=/proc/no" >"$RUN/etc/plugstack.conf"
    stays_closed "$how: a bad run_dir on every node" 'hvd: node1, node2: cannot make /proc/no'
    echo "$how $good colour=red" >"$RUN/etc/plugstack.conf"
    stays_closed "$how: a bad key where srun runs" '"colour=red" is not an argument'
    echo "$how $good" >"$RUN/etc/plugstack.conf"
done
plugstack "${conf[@]}"

# slurmd, too, needs munge: the launch fails before the plugin is loaded
all_idle() { [ "$(ctl sinfo -h -t idle -o %D 2>/dev/null | awk '{s += $1} END {print s + 0}')" = 2 ]; }
# The nodes are allocated before: Slurm starts no job on a node that it cannot ask.
for how in optional required; do
    within 240 all_idle
    echo "$how $so ${conf[*]}" >"$RUN/etc/plugstack.conf"
    job=$(ctl salloc -N2 -n4 --ntasks-per-node=2 --no-shell 2>&1 | sed -n 's/.*Granted job allocation \([0-9]*\)$/\1/p')
    node_has node2 /dev/null "$RUN/munge/munge.sock"
    stays_closed "$how: munge is down on one node" 'node2' -- --jobid="$job"
    node_restore node2 "$RUN/munge/munge.sock"
    ctl scancel "$job"
done
plugstack "${conf[@]}"
within 240 all_idle
