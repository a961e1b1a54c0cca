# shellcheck shell=bash disable=SC2154,SC2016 # run.sh sources this: its functions and variables; tasks expand
# SPDX-License-Identifier: Apache-2.0
# Ranks on Slurm's GPUs: which of them each rank is shown by which option (the table in spank_plugin/README.md),
# and ranks that use them, on the driver and the NCCL of tests/fakes/cuda, which do not leave a host.
is_idle() { [ -z "$(ctl squeue -h)" ]; }
gpus() { # SRUN-OPTION...: two tasks on each of two nodes, when the GPUs of the last job are free again
    within 120 is_idle
    srun --hvd -N2 -n4 --ntasks-per-node=2 "$@" bash -c \
        'echo "$(hostname) local $HOROVOD_LOCAL_RANK sees ${CUDA_VISIBLE_DEVICES-all}"' 2>&1 | sort
}
each_sees() { # GPUS-OF-LOCAL-RANK-0 GPUS-OF-LOCAL-RANK-1
    local node
    for node in node1 node2; do printf '%s local 0 sees %s\n%s local 1 sees %s\n' "$node" "$1" "$node" "$2"; done
}
for option in --gpus-per-node=2 --gres=gpu:2; do
    is "$option: each rank sees the step's GPUs of its node" "$(each_sees 0,1 0,1)" "$(gpus $option)"
done
is '--gpus-per-task=1: each rank sees one, of its own' "$(each_sees 0 1)" "$(gpus --gpus-per-task=1)"
is '--gpu-bind=map_gpu: in the order that is said' "$(each_sees 1 0)" "$(gpus --gpus-per-node=2 --gpu-bind=map_gpu:1,0)"
is 'no option: no list' "$(each_sees all all)" "$(gpus)"
is '--gpus alone: so many for the step, 3 and 1 on Slurm 22.05' 4 \
    "$(gpus --gpus=4 | sed 's/ local . sees / /' | sort -u | cut -d' ' -f2 | tr ',' '\n' | wc -l)"

gpu=$RUN/gpu
gpu_up() { # a copy: nodes have their own /tmp
    install -d "$gpu" && cp -L "$BUILD"/plain/fakes/lib{cuda.so.1,nccl.so.2,nvidia-ml.so.1} "$BUILD"/plain/lib/libhvd*.so \
        "$BUILD/plain/bin/launch-gpu-world" "$gpu/"
}
gpu_world() { # DEVICE SRUN-OPTION...: two ranks on one node of four GPUs; DEVICE "": that of the local rank
    local device=$1
    shift
    within 120 is_idle
    ctl env LD_LIBRARY_PATH="$gpu" HVD_FAKE_GPUS=4 HVD_FAKE_HANG_S=60 ${device:+HVD_TEST_DEVICE="$device"} \
        srun -Q --hvd -N1 -n2 "$@" "$gpu/launch-gpu-world" 3 2>&1
}
if gpu_up 2>/dev/null; then
    is '--gpus-per-node=2: ranks train on the GPU of their local rank' $'done\ndone' "$(gpu_world '' --gpus-per-node=2)"
    is '--gpus-per-task=1: ranks train on device 0' $'done\ndone' "$(gpu_world 0 --gpus-per-task=1)"
    has '--gpus-per-task=1: a local rank is no device, and a message says so' "$(gpu_world '' --gpus-per-task=1)" \
        'there is no CUDA device 1: 1 is visible (CUDA_VISIBLE_DEVICES="1"); if each rank sees one GPU only, use device 0'
    has 'two ranks on one GPU are named' "$(gpu_world 0 --gpus-per-node=1)" 'ranks 0 and 1 use the same GPU GPU-' '(host node'
    if [ -d "$RUN/stage/bin" ]; then
        plugstack "run_dir=$RUNDIR" "dir=$RUN/stage"
        out=$(ctl env LD_LIBRARY_PATH="$gpu" HVD_FAKE_GPUS=4 srun -Q --hvd -N2 -n2 --gpus-per-node=2 horovodrun --check-build 2>&1)
        is 'horovodrun --check-build on both nodes: the GPUs of the step' '2 NCCL, 4 GPUs' \
            "$(grep -cF '[X] NCCL' <<<"$out") NCCL, $(grep -cE '^    GPU [0-9]+:' <<<"$out") GPUs"
        plugstack "${conf[@]}"
    else
        skip 'horovodrun --check-build on both nodes' "no installed tree in $STAGE (make stage)"
    fi
else
    for t in 'ranks on the GPU of their local rank' 'ranks on device 0' 'a local rank that is no device' 'two ranks on one GPU' 'horovodrun --check-build'; do
        skip "$t" 'the ranks and the fakes are not built (make gpu-world)'
    done
fi
