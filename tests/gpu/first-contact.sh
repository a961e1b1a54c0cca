#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# first-contact.sh [--seconds N] [--out DIR] [--mode gpu|fake] [STEP ...]: all tests of the GPU backend on a machine
# that has a GPU, most informative first, within N seconds (550). Needs glibc 2.17 or later, no network, no root.
# Results are in DIR ($OUT, else ./first-contact-out): summary.txt says what failed first, what passed and what was
# skipped; gpu.log has all output, *.jsonl the results and figures. The exit code is 0 (good), 1 (something failed,
# ran out of time or was stopped) or 77 (there is no GPU).
#
# The steps are run.py's stages. Without a Python from 3.9 the programs that need none run from here: driver,
# kernels, nccl. PYTHON: the interpreter.
set -u
here=$(cd "$(dirname "$0")" && pwd)
tests=$here/tests/gpu
[ -e "$tests/run.py" ] || tests=$here # in the source tree

# The one that has most of: version 3.9, numpy, torch.
score='import importlib.util, sys
print(sys.version_info >= (3, 9) and 1 + sum(map(bool, map(importlib.util.find_spec, ("numpy", "torch")))))'
best='' most=0
for python in ${PYTHON:-python3 /usr/bin/python3 python3.13 python3.12 python3.11 python3.10 python3.9}; do
    has=$("$python" -c "$score" 2>/dev/null) || continue
    case $has in [1-9]) ;; *) continue ;; esac
    if [ "$has" -gt "$most" ]; then best=$python most=$has; fi
done
[ -z "$best" ] || exec "$best" -B "$tests/run.py" --mode gpu --seconds 550 --out "${OUT:-first-contact-out}" "$@"

# --- without Python ---

seconds=550 out=${OUT:-first-contact-out} mode=gpu steps=
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) seconds=$2 && shift ;;
        --out) out=$2 && shift ;;
        --mode) mode=$2 && shift ;;
        *) steps="$steps $1" ;;
    esac
    shift
done
mkdir -p "$out"
log=$out/$mode.log summary=$out/summary.txt pids=
tmp=$(mktemp -d) || exit 1
# as harness.py's start_ranks
export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_NET_PLUGIN=none NCCL_MAX_CTAS=2 NCCL_DEBUG=WARN
end=$(($(date +%s) + seconds))
good=0 bad=0 first=

say() {
    echo "$1" | tee -a "$log"
}

note() { # a line of the summary
    echo "$1" >>"$summary"
}

# step NAME SECONDS N COMMAND...: N ranks of a command; of more than one each gets its rank, N and a folder
step() {
    name=$1 limit=$2 n=$3
    shift 3
    case "$steps " in ' ' | *" ${name%% *} "*) ;; *) return ;; esac
    left=$((end - $(date +%s)))
    if [ "$left" -lt 2 ]; then note "$name: skipped, no time was left" && return; fi
    if [ "$limit" -gt "$left" ]; then limit=$left; fi
    say "# $name: at most $limit s"
    mkdir "$tmp/$n.$name" && mkfifo "$tmp/pipe"
    exec 3<>"$tmp/pipe" # so that the pipe has a writer until all ranks have ended
    tee -a "$log" <"$tmp/pipe" 3>&- &
    tee=$! pids='' rank=0
    while [ "$rank" -lt "$n" ]; do
        if [ "$n" -gt 1 ]; then set -- "$1" "$rank" "$n" "$tmp/$n.$name"; fi
        NCCL_HOSTID=rank$rank timeout -k 5 "$limit" "$@" >&3 2>&1 3>&- &
        pids="$pids $!" rank=$((rank + 1))
    done
    result=passed
    for pid in $pids; do
        wait "$pid"
        code=$?
        case $code in 0) ;; 124 | 137) result="killed at its limit of $limit s" ;; *) result="failed with exit code $code" ;; esac
    done
    exec 3>&-
    pids=
    wait "$tee"
    rm "$tmp/pipe"
    note "$name: $result"
    if [ "$result" = passed ]; then good=$((good + 1)) && return; fi
    bad=$((bad + 1)) first=${first:-$name}
}

finish() {
    trap '' TERM INT HUP
    for pid in $pids; do kill "$pid" 2>/dev/null; done
    rm -rf "$tmp"
    note "$good passed, $bad failed; skipped: what needs Python 3.9 (matrix, faults, torch, bench, sanitizer)"
    if [ -n "$first" ]; then note "failed first: $first"; fi
    cat "$summary"
}

: >"$log"
echo "# tests of the GPU backend, without Python" >"$summary"
trap 'finish' EXIT
trap 'note "stopped by a signal"; exit 1' TERM INT HUP
{
    uname -srm
    nvidia-smi -L
    ls /dev/nvidia*
    df -h /dev/shm
    grep locked /proc/self/limits
    "$here/bin/hvd-gpu" info "$here/lib"
} 2>&1 | tee -a "$log" "$summary"
if [ "$mode" = fake ]; then
    unset CUDA_VISIBLE_DEVICES
    export LD_LIBRARY_PATH="$here/fakes" HVD_FAKE_HOST=gpu HVD_FAKE_FAULTS="${RM_FAKE_FAULTS:-}"
elif ! [ -r /dev/nvidiactl ]; then
    note "skipped: all, no NVIDIA driver answers (/dev/nvidiactl)"
    exit 77
fi
step driver 30 1 "$here/gpu/conform_driver"
for ptx in 0 1; do
    for program in "$here"/gpu/gpu_*kernels; do
        some=
        case $mode$program in fake*topk*) some=long_indexes ;; esac # the fake is slow
        step "kernels ${program##*/} $ptx" 60 1 env HVD_GPU_PTX=$ptx RM_EXACT=50 UNIT_FILTER="*$some*" "$program"
    done
done
step nccl 60 2 "$here/gpu/conform_nccl"
step nccl 60 3 "$here/gpu/conform_nccl"
[ "$bad" -eq 0 ]
