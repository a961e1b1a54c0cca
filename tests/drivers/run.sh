#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh: our prototypes, structs and numbers against NVIDIA's headers; our tables of the driver's and NVML's
# symbols and result codes against real driver libraries of several releases, and what hvd-gpu says with each of
# them. TAP; no GPU is needed. BIN, LIB, KERNELS_BIN: what was built.
set -uo pipefail
cd "$(dirname "$0")" || exit
dir=$(./fetch.sh) || exit
n=0
result() { # result STATUS NAME
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
# root's libcuda would make device nodes of a driver that is not there
quiet=()
[ "$(id -u)" != 0 ] || quiet=(setpriv --bounding-set=-mknod)
says() { # says RELEASE LINE...: hvd-gpu prints each of these lines
    local release=$1 out line rc=0
    shift
    # no GPU is visible, whatever the machine has
    out=$(CUDA_VISIBLE_DEVICES='' LD_LIBRARY_PATH=$dir/$release timeout 60 "${quiet[@]}" "$BIN/hvd-gpu" info "$LIB") || rc=$?
    for line in "$@"; do grep -qxF -- "$line" <<<"$out" || rc=1; done
    [ $rc = 0 ] || while read -r line; do echo "# $line"; done <<<"$out"
    return $rc
}
site=$(echo "$(../setup/venv.sh cudaheaders)"/lib/python3*/site-packages) || exit
nvidia=$site/nvidia
nccl=$(echo "$(../setup/venv.sh nccl)"/lib/python3*/site-packages/nvidia/nccl) || exit
compiles() { # compiles FLAG...
    (cd ../.. && g++ -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I. -Iruntime/include "$@" tests/drivers/headers.cc) 2>&1 \
        | sed 's/^/# /'
    return "${PIPESTATUS[0]}"
}
compiles -isystem "$nvidia/cuda_runtime/include" -isystem "$nvidia/nvml_dev/include" -DNVML
result $? "our prototypes are those of CUDA 12.9 and its NVML"
compiles -isystem "$nvidia/cu13/include" -isystem "$nccl/include" -DNCCL
result $? "our prototypes are those of CUDA 13.0 and NCCL"
./ptx.py "$KERNELS_BIN" "$nvidia/cuda_nvcc/bin/ptxas" sm_70 sm_80 sm_86
result $? "the kernels' PTX is one that CUDA 11.7 knows"
./ptx.py ../gpu/faults_rank.py "$nvidia/cuda_nvcc/bin/ptxas" sm_70 sm_80 sm_86
result $? "so is that of the kernels of tests/gpu"
while read -r release suite _; do
    case $release in '#'*) continue ;; esac
    if [ ! -e "$dir/$release/libcuda.so.1" ]; then
        echo "ok $((++n)) - driver of $release # SKIP Debian's $suite has no driver for CUDA $release any more"
        continue
    fi
    if [ "$release" = 10.1 ]; then
        says "$release" "problem the driver is for CUDA 10.1; 11.0 or later is needed (NVIDIA driver 450 or later)"
        result $? "the driver of CUDA $release is refused"
        continue
    fi
    code=$(awk -F. '{ print $1 * 1000 + $2 * 10 }' <<<"$release")
    "$BIN/real-driver" "$dir/$release/libcuda.so.1" "$dir/$release/libnvidia-ml.so.1" "$code"
    result $? "the driver of CUDA $release has what we use"
    says "$release" "cuda $release" "problem no CUDA device is visible (CUDA_VISIBLE_DEVICES=\"\")"
    result $? "hvd-gpu with the driver of CUDA $release and no GPU"
done <packages
echo "1..$n"
