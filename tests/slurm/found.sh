# shellcheck shell=bash disable=SC2154,SC2001 # run.sh sources this: its functions and variables
# SPDX-License-Identifier: Apache-2.0
# Bare srun without the plugin, and other launchers inside a job: which launcher is found, and how ranks meet.
weak='the launcher gives no secret'

found_places() { # BY: two ranks on each of two nodes
    for r in 0 1 2 3; do echo "rank $r/4 local $((r % 2))/2 cross $((r / 2))/2 by $1 sum 10"; done
}
found_pairs() { # BY [N]: N worlds of two ranks on one node
    for r in 0 1; do for _ in $(seq "${2:-1}"); do echo "rank $r/2 local $r/2 cross 0/1 by $1 sum 3"; done; done
}
has_weak() { if [[ $1 == *"$weak"* ]]; then echo weak; else echo random; fi; }
found_srun() { # NAME TOKEN SRUN-OPTION... [-- WORD...]
    local name=$1 token=$2 out
    shift 2
    out=$(srun -N2 -n4 --ntasks-per-node=2 "$@" 2>&1)
    is "$name: every rank is found" "$(found_places slurm)" "$(found_ranks "$out")"
    is "$name: the token is $token" "$token" "$(has_weak "$out")"
}

found_needs() { # NAME PROGRAM PACKAGE: whether the program and its libraries are there; else NAME is skipped
    if ! command -v "$2" >/dev/null || ldd "$2" 2>/dev/null | grep -q 'not found'; then
        skip "$1" "$3 is not installed"
        return 1
    fi
}
found_beside_mpi() { # NAME SRUN-OPTION... PROGRAM: it uses MPI too, before us and after us
    local name=$1 order out
    shift
    for order in 'hvd mpi' 'mpi hvd'; do
        # shellcheck disable=SC2086 # two words
        out=$(srun -N2 -n2 "$@" $order 2>&1)
        is "$name: $order" '2 mpi sum 3' "$(grep '^mpi' <<<"$out" | uniq -c | tr -s ' ' | sed 's/^ //')"
    done
}

if found_up 2>/dev/null; then
    torchrun="/usr/bin/python3 -W ignore -m torch.distributed.run --redirects 1 --tee 1 --monitor_interval 0.1"
    plugstack "${conf[@]}"
    for mpi in none pmi2 pmix; do # Slurm's own sets stand beside ours then
        srun --mpi=list 2>&1 | grep -qw $mpi || continue
        out=$(srun --hvd --mpi=$mpi -N2 -n4 --ntasks-per-node=2 "$found_rank" 2>&1)
        is "srun --hvd --mpi=$mpi is ours" "$(found_places horovod)" "$(found_ranks "$out")"
    done
    if found_needs 'mpiexec inside srun --hvd' mpiexec.mpich mpich; then
        out=$(srun --hvd -N2 -n2 mpiexec.mpich -launcher fork -hosts localhost -n 2 "$found_rank" 2>&1)
        is 'mpiexec inside srun --hvd' "$(found_pairs mpiexec 2)" "$(found_ranks "$out")"
    fi
    out=$(srun --hvd -N2 -n2 "$found/bin/horovodrun" -np 2 "$found_rank" 2>&1)
    is 'horovodrun inside srun --hvd' "$(found_pairs horovod 2)" "$(found_ranks "$out")"
    if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
        # shellcheck disable=SC2086 # words
        out=$(srun --hvd -N2 -n2 $torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_id 8 \
            --rdzv_endpoint node1:29518 --no_python "$found_rank" 2>&1)
        is 'torchrun inside srun --hvd' "$(found_places torchrun)" "$(found_ranks "$out")"
        is 'and its ranks have the token of the step' random "$(has_weak "$out")"
    else
        skip 'torchrun inside srun --hvd' 'python3-torch is not installed'
    fi
    : >"$RUN/etc/plugstack.conf"
    found_srun 'srun --mpi=none' weak --mpi=none "$found_rank"
    found_srun 'srun --mpi=pmi2' weak --mpi=pmi2 "$found_rank"
    if found_needs 'srun --mpi=pmi2 with MPICH' "$found_rank-mpich" mpicc.mpich; then
        # slurmstepd answers one greeting: it is MPI's
        UCX_TLS=tcp,self found_beside_mpi 'srun --mpi=pmi2 with MPICH' --mpi=pmi2 "$found_rank-mpich"
    fi
    if srun --mpi=list 2>&1 | grep -qw pmix; then
        found_srun 'srun --mpi=pmix' random --mpi=pmix "$found_rank"
        install -d "$found/nolib"
        : >"$found/nolib/libpmix.so.2"
        found_srun 'srun --mpi=pmix without libpmix' weak --mpi=pmix env "LD_LIBRARY_PATH=$found/nolib" "$found_rank"
        out=$(SLURM_HOSTFILE=$RUN/arbitrary srun --mpi=pmix -n3 --distribution=arbitrary "$found_rank" 2>&1)
        is 'srun --mpi=pmix --distribution=arbitrary: rank 0 on the second node' 'rank 0/3 local 0/2 cross 1/2 by slurm sum 6
rank 1/3 local 0/1 cross 0/2 by slurm sum 6
rank 2/3 local 1/2 cross 0/1 by slurm sum 6' "$(found_ranks "$out")"
        out=$(srun --mpi=pmix -N2 -n4 "$found_rank" hvd fail=2:7 2>&1)
        is "a failing rank's exit code is srun's" 7 $?
        has 'and the other ranks name it' "$out" 'rank 2 (host node'
        if found_needs 'srun --mpi=pmix with Open MPI' "$found_rank-openmpi" mpicc.openmpi; then
            found_beside_mpi 'srun --mpi=pmix with Open MPI' --mpi=pmix "$found_rank-openmpi"
        fi
    else
        skip 'srun --mpi=pmix' "this Slurm has no mpi/pmix"
    fi

    cat >"$found/nest" <<N
#!/bin/bash
[ "\$SLURM_PROCID" = 0 ] || exit 0
exec srun --overlap --mpi=none -N2 -n4 --ntasks-per-node=2 $found_rank
N
    chmod +x "$found/nest"
    for mpi in pmi2 pmix; do # the outer step's variables are still there
        srun --mpi=list 2>&1 | grep -qw $mpi || continue
        out=$(srun --mpi=$mpi -N2 -n4 --ntasks-per-node=2 "$found/nest" 2>&1)
        is "srun inside srun --mpi=$mpi" "$(found_places slurm)" "$(found_ranks "$out")"
    done

    inside() { # NAME BY COMMAND...: in a batch script of two nodes; two: torchrun on both
        local name=$1 by=$2 out
        shift 2
        printf '#!/bin/bash\n%s\n' "$*" >"$found/job.sh"
        ctl sbatch -Q --wait -N2 -n4 --ntasks-per-node=2 -o "$found/job.out" "$found/job.sh" 2>/dev/null
        out=$(cat "$found/job.out")
        case $by in
            horovod | torchrun) is "$name in a batch script" "$(found_pairs "$by")" "$(found_ranks "$out")" ;;
            *) is "$name in a batch script" "$(found_places "${by/two/torchrun}")" "$(found_ranks "$out")" ;;
        esac
    }
    inside horovodrun horovod "$found/bin/horovodrun" -np 2 "$found_rank"
    inside srun slurm srun "$found_rank"
    if found_needs 'mpirun in a batch script' mpirun.openmpi openmpi-bin; then
        inside mpirun openmpi mpirun.openmpi --allow-run-as-root --bind-to none --map-by ppr:2:node "$found_rank"
    fi
    if found_needs 'mpiexec in a batch script' mpiexec.mpich mpich; then
        inside mpiexec mpiexec mpiexec.mpich -n 4 -ppn 2 "$found_rank"
    fi
    if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
        inside torchrun torchrun "$torchrun" --standalone --nproc_per_node 2 --no_python "$found_rank"
        inside 'srun torchrun' two srun -n2 "$torchrun" --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_id 7 \
            --rdzv_endpoint node1:29517 --no_python "$found_rank"
    else
        skip 'torchrun in a batch script' 'python3-torch is not installed'
    fi
    alone='the Slurm job has several tasks, but this process is not one of them'
    out=$(ctl salloc -Q -N2 -n2 "$found_rank" 2>&1)
    is "salloc's shell is no task" 'rank 0/1 local 0/1 cross 0/1 by none sum 1' "$(found_ranks "$out")"
    has 'and that several tasks were asked for is said' "$out" "$alone" 'tasks=2'
    for tasks in 4 1; do
        ctl sbatch -Q --wait -n$tasks -o "$found/job.out" --wrap "$found_rank" 2>/dev/null
        is "a batch script of $tasks tasks without srun" "$((tasks > 1)) rank 0/1 local 0/1 cross 0/1 by none sum 1" \
            "$(grep -c "$alone" "$found/job.out") $(found_ranks "$(cat "$found/job.out")")"
    done
else
    skip 'jobs that Slurm starts without the plugin' 'found-rank is not built (make build/plain/bin/found-rank)'
fi
