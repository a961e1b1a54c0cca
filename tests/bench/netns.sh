#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One allreduce peer between two network namespaces, each with a CPU of its own.
#
#     tests/bench/netns.sh backend BIN | openmpi BIN | gloo
#
# BIN holds bench_backend or bench_mpi. The namespaces are joined by veth and go with the
# script. Every peer's rank i runs on CPU i, or the scheduler's choice would be measured.
# Needs root.
set -euo pipefail

readonly A=rmbench$$a B=rmbench$$b NET=10.213.77
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)

down() {
    ip netns del "$A" 2>/dev/null || true
    ip netns del "$B" 2>/dev/null || true
    rm -rf "$scratch"
}
trap down EXIT

up() {
    ip netns add "$A"
    ip netns add "$B"
    ip link add va netns "$A" type veth peer name vb netns "$B"
    ip -n "$A" addr add $NET.1/24 dev va
    ip -n "$B" addr add $NET.2/24 dev vb
    ip -n "$A" link set lo up
    ip -n "$B" link set lo up
    ip -n "$A" link set va up
    ip -n "$B" link set vb up
}

backend() {
    ip netns exec "$A" env BENCH_PIN=1 "$1/bench_backend" 2 backend $NET.1 - "$B"
}

# Open MPI takes ranks of one host name for neighbours: each side has its own.
openmpi() {
    cat >"$scratch/rsh" <<EOF
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
shift
exec ip netns exec $B unshare -u sh -c "hostname $B; \$*"
EOF
    cat >"$scratch/rank" <<EOF
#!/bin/bash
exec taskset -c \$OMPI_COMM_WORLD_RANK $1/bench_mpi openmpi
EOF
    chmod +x "$scratch/rsh" "$scratch/rank"
    ip netns exec "$A" unshare -u sh -c "hostname $A; exec mpirun.openmpi \
        --allow-run-as-root --bind-to none --mca plm_rsh_agent $scratch/rsh \
        --mca oob_tcp_if_include $NET.0/24 --mca btl_tcp_if_include $NET.0/24 \
        --mca pml ob1 --mca btl tcp,self -H $NET.1:1,$NET.2:1 -np 2 \
        -x BENCH_MAX_BYTES $scratch/rank"
}

gloo() {
    local rank pids=()
    for rank in 0 1; do
        local ns=$A dev=va
        [ $rank = 0 ] || { ns=$B dev=vb; }
        ip netns exec "$ns" env RANK=$rank WORLD_SIZE=2 MASTER_ADDR=$NET.1 \
            MASTER_PORT=29577 GLOO_SOCKET_IFNAME=$dev OMP_NUM_THREADS=1 \
            taskset -c $rank /usr/bin/python3 "$here/allreduce_torch.py" gloo torch.gloo &
        pids+=($!)
    done
    wait "${pids[0]}"
    wait "${pids[1]}"
}

up
case ${1:-} in
backend | openmpi) "$1" "$(readlink -f "$2")" ;;
gloo) gloo ;;
*)
    echo "usage: $0 backend BIN | openmpi BIN | gloo" >&2
    exit 2
    ;;
esac
