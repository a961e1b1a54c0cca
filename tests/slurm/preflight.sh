# shellcheck shell=bash disable=SC2154 # run.sh sources this: its functions and variables
# SPDX-License-Identifier: Apache-2.0
# What srun --hvd finds before it starts a program: one sentence for each, whatever the number of tasks and nodes.
# After closed.sh, which has node_has and node_restore.
says() { # NAME SENTENCE SRUN-OPTION...: two tasks on each of two nodes print it once, and no program runs
    says_of "$1" "$2" "${@:3}" -N2 -n4 --ntasks-per-node=2 /bin/bash -c 'echo ran'
}
says_of() { # NAME SENTENCE SRUN-WORD...
    local name=$1 sentence=$2 out rc lines
    shift 2
    out=$(srun --hvd "$@" 2>&1)
    rc=$?
    lines=$(grep -c 'hvd: ' <<<"$out")
    if [ $rc -eq 0 ] || [ $rc -eq 124 ] || [ "$lines" -ne 1 ] || grep -q '^ran' <<<"$out"; then
        not_ok "$name" "exit code $rc, $lines lines"$'\n'"$out"
    else
        has "$name" "$out" "$sentence"
    fi
}
runs() { # NAME SRUN-WORD...: the program runs, and srun says nothing
    is "$1" ran "$(srun --hvd "${@:2}" 2>&1 | sort -u)"
}

# --- the runtime ----------------------------------------------------------------------------------
old=$RUN/old
install -d "$old/python/_hvd" "$old/bin"
echo "RINGMASTER_VERSION = '8.8.8'" >"$old/python/_hvd/_version.py"
plugstack "${conf[0]}" "dir=$old"
says 'a runtime of another version, on both nodes' \
    "hvd: node1, node2: plugstack.conf: dir=$old: the runtime is version 8.8.8, but spank_hvd.so is $version: install the same"
rm "$old/python/_hvd/_version.py"
says 'a runtime without a Python package' "there is no Python package: cannot open $old/python/_hvd/_version.py: No such file"
plugstack "${conf[0]}"
install -d "$RUN/py/horovod"
printf 'import horovod.torch as hvd\nprint("ran")\n' >"$RUN/own.py"
printf 'print("ran")\ntry:\n    import horovod.torch as hvd\nexcept ImportError:\n    pass\n' >"$RUN/other.py"
cp "$RUN/own.py" "$RUN/py/own.py"
: >"$RUN/py/horovod/torch.py"
if [ -e /opt/ringmaster/python ]; then
    skip 'a script whose Python has no package' '/opt/ringmaster is installed'
else
    says_of 'a script whose Python has no package' "there is no Python package horovod for $RUN/own.py: not in /opt/ringmaster/python (plugstack.conf: dir), and /usr/bin/python3 finds none" \
        -N2 -n4 /usr/bin/python3 -u "$RUN/own.py"
    says_of 'a text of -c, python3 from PATH' 'there is no Python package horovod for the program' \
        -N1 -n2 python3 -c 'import perseus'
    runs 'a package beside the script is enough' -N2 -n2 python3 "$RUN/py/own.py"
    runs 'a package in PYTHONPATH is enough' -N2 -n2 /usr/bin/env "PYTHONPATH=$RUN/py" python3 "$RUN/own.py"
    is 'a package in the PYTHONPATH of the step is enough' ran \
        "$(ctl env "PYTHONPATH=$RUN/py" srun -Q --hvd -N2 -n2 python3 "$RUN/own.py" 2>&1 | sort -u)"
    runs 'a script that may do without the package' -N2 -n2 python3 "$RUN/other.py"
fi
plugstack "${conf[@]}"

# --- the node -------------------------------------------------------------------------------------
"$HERE/on" node2 mount -t tmpfs -o ro,mode=755 tmpfs "$RUNDIR"
says 'run_dir cannot be written to' "hvd: node2: cannot make a folder in $RUNDIR (plugstack.conf: run_dir): Read-only file system"
node_restore node2 "$RUNDIR"

says 'fewer GPUs than tasks: --ntasks-per-gpu' \
    'hvd: node1, node2: 2 tasks need 2 GPUs (--gpu-bind=single:1, which --gpus-per-task and --ntasks-per-gpu set, too), but the step has 1 on this node' \
    --gpus-per-node=1 --gpu-bind=single:1
says 'fewer GPUs than tasks: per_task' '2 tasks need 4 GPUs (--gpu-bind=per_task:2' --gpus-per-node=2 --gpu-bind=per_task:2
runs 'two tasks on each GPU, as asked' -N2 -n4 --ntasks-per-node=2 --gpus-per-node=1 --gpu-bind=single:2 echo ran

"$HERE/on" node2 mount -t tmpfs tmpfs /sys/class
"$HERE/on" node2 mkdir -p /sys/class/infiniband/mlx5_0
locked() { # MEMLOCK-KIB OPTION...: as a user, for root has no limit
    UID_GID=65534:65534 ctl bash -c "ulimit -l $1 && exec srun -Q --hvd -N2 -n4 --ntasks-per-node=2 ${*:2} echo ran" 2>&1
}
out=$(locked 64 --gpus-per-node=1)
has 'too little memory can be locked where RDMA devices are' "$(grep -c hvd: <<<"$out") $(grep -c ran <<<"$out") $out" \
    '1 0 ' 'hvd: node2: the limit of locked memory is 64 KiB, too low for its RDMA devices: slurmd needs LimitMEMLOCK=infinity'
is 'a step without GPUs does not need it' ran "$(locked 64 | sort -u)"
node_restore node2 /sys/class

# --- the network ----------------------------------------------------------------------------------
says 'an interface that is not there' 'hvd: node1, node2: HOROVOD_GLOO_IFACE: no interface "ib7" with an address, there are' --hvd=iface=ib7
# packets to node1 leave for an address that nobody has
"$HERE/on" node2 ip neigh replace "$NET.1" lladdr 02:00:00:00:00:77 dev eth0 nud permanent
says 'two nodes that cannot reach each other' \
    "hvd: node1 and node2 cannot connect to each other, between $NET.1 and $NET.2: Connection timed out; --hvd=iface= selects"
"$HERE/on" node2 ip neigh del "$NET.1" dev eth0
for i in 1 2; do # a network of its own on each node
    "$HERE/on" "node$i" ip link add own0 type bridge
    "$HERE/on" "node$i" ip addr add "10.99.$i.1/24" dev own0
    "$HERE/on" "node$i" ip link set own0 up
done
says 'an interface on which nodes do not reach each other' \
    'hvd: node1 and node2 cannot connect to each other, between 10.99.1.1 and 10.99.2.1: Network is unreachable' --hvd=iface=own0
for i in 1 2; do "$HERE/on" "node$i" ip link del own0; done
runs 'and they can again' -N2 -n4 --ntasks-per-node=2 echo ran
