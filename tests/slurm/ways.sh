#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each way to start ranks by Slurm, and each way in which Slurm stops them, with --hvd on a real Slurm of four
# nodes. TAP. Needs what run.sh needs, and found-rank (make found-ranks). The table of ways is in README.md.
# shellcheck disable=SC2016,SC2001 # what is in single quotes is expanded by the tasks
set -uo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/slurm/suite.sh
. "$HERE/suite.sh"
cluster 4
found_up || { echo "Bail out! found-rank is not built (make found-ranks)"; exit 1; }

places() { # N LAUNCHER PLACE...: "RANK LOCAL/SIZE CROSS/SIZE" of each of N ranks
    local n=$1 by=$2 p
    shift 2
    for p in "$@"; do
        # shellcheck disable=SC2086 # three words
        set -- $p
        echo "rank $1/$n local $2 cross $3 by $by sum $((n * (n + 1) / 2))"
    done | sort
}
two_each() { # LAUNCHER: two ranks on each of four nodes
    places 8 "$1" '0 0/2 0/4' '1 1/2 0/4' '2 0/2 1/4' '3 1/2 1/4' '4 0/2 2/4' '5 1/2 2/4' '6 0/2 3/4' '7 1/2 3/4'
}
one_each() { places 4 "$1" '0 0/1 0/4' '1 0/1 1/4' '2 0/1 2/4' '3 0/1 3/4'; }
job_is() { # JOB STATE
    [[ $(ctl scontrol show job -o "$1" 2>/dev/null) == *" JobState=$2 "* ]]
}
is_idle() { [ -z "$(ctl squeue -h)" ]; }
has_no_job() { [ -z "$(ctl squeue -h -n "$1")" ]; } # NAME
submit() { # NAME SBATCH-OPTION...: the script $RUN/NAME.sh, output in NAME.out; sets job
    local name=$1
    shift
    rm -f "$RUN/$name".out*
    job=$(ctl sbatch --parsable -o "$RUN/$name.out%a" "$@" "$RUN/$name.sh")
}
batch() { # NAME SBATCH-OPTION...: as submit, and waits for the end of the job (sbatch --wait polls slowly)
    submit "$@"
    within 300 job_is "$job" COMPLETED || echo "# job $job: $(ctl scontrol show job -o "$job")"
    cat "$RUN/$1".out*
}
script() { # NAME LINE...
    { printf '#!/bin/bash\n#SBATCH --hvd\n' && printf '%s\n' "${@:2}"; } >"$RUN/$1.sh"
}
count() { uniq -c | sed 's/^ *//'; }

# --- layouts, and several steps of one job ----------------------------------------------------------
step() { srun --hvd --jobid="$job" "$@" 2>&1; }
at_once() { # N OPTION...: N steps
    local n=$1
    shift
    for _ in $(seq "$n"); do step "$@" -N4 -n4 "$found_rank" & done | sort | count
}
each() { one_each horovod | sed "s/^/$1 /"; }
way_layouts() {
    job=$(ctl salloc -N4 -n16 --ntasks-per-node=4 --no-shell 2>&1 | sed -n 's/.*Granted job allocation \([0-9]*\)$/\1/p')
    is 'srun, two tasks on each of four nodes' "$(two_each horovod)" \
        "$(found_ranks "$(step -N4 -n8 --ntasks-per-node=2 "$found_rank")")"
    is 'plane of 2, the last node has one' "$(places 7 horovod '0 0/2 0/4' '1 1/2 0/3' '2 0/2 1/4' '3 1/2 1/3' '4 0/2 2/4' \
        '5 1/2 2/3' '6 0/1 3/4')" "$(found_ranks "$(step -N4 -n7 -m plane=2 "$found_rank")")"
    is 'cyclic, the last node has one' "$(places 7 horovod '0 0/2 0/4' '1 0/2 1/4' '2 0/2 2/4' '3 0/1 3/4' '4 1/2 0/3' \
        '5 1/2 1/3' '6 1/2 2/3')" "$(found_ranks "$(step -N4 -n7 -m cyclic "$found_rank")")"
    printf 'node3\nnode1\nnode3\nnode4\nnode3\nnode2\nnode1\n' >"$RUN/arbitrary"
    is 'arbitrary, with 2, 1, 3 and 1 tasks' "$(places 7 horovod '0 0/3 2/4' '1 0/2 0/4' '2 1/3 1/2' '3 0/1 3/4' \
        '4 2/3 0/1' '5 0/1 1/4' '6 1/2 0/2')" \
        "$(found_ranks "$(SLURM_HOSTFILE=$RUN/arbitrary step -n7 -m arbitrary "$found_rank")")"
    printf '0 %s\n1-3,5 %s hvd\n* %s hvd down\n' "$found_rank" "$found_rank" "$found_rank" >"$RUN/multi"
    is '--multi-prog: one world of three programs' "$(two_each horovod)" \
        "$(found_ranks "$(step -N4 -n8 --ntasks-per-node=2 --multi-prog "$RUN/multi")")"
    is '--export=NONE' "$(one_each horovod)" "$(found_ranks "$(step --export=NONE -N4 -n4 "$found_rank")")"
    is '--overlap: eight steps at once are eight worlds' "$(each 8)" "$(at_once 8 --overlap)"
    is '--exclusive: four steps at once on cores of their own' "$(each 4)" "$(at_once 4 --exclusive)"
    ctl scancel "$job"
}
way_components() {
    is 'salloc of two components, one step over both' \
        "$(places 5 horovod '0 0/3 0/3' '1 1/3 0/1' '2 2/3 0/1' '3 0/1 1/3' '4 0/1 2/3')" \
        "$(found_ranks "$(ctl salloc -Q --hvd -N1 -w node1 -n3 : -w 'node[2-3]' -N2 -n2 srun -Q --het-group=0,1 "$found_rank" 2>&1)")"
}

# --- users, conda, modules --------------------------------------------------------------------------
way_user() {
    is 'another user than root' "$(two_each horovod)" \
        "$(found_ranks "$(UID_GID=65534:65534 srun --hvd -N4 -n8 --ntasks-per-node=2 "$found_rank" 2>&1)")"
}
way_environment() {
    /usr/bin/python3 -m venv --without-pip "$RUN/env"
    cat >"$RUN/which.py" <<'P'
import os, sys
print(sys.prefix, os.environ["CONDA_PREFIX"], os.environ["LD_LIBRARY_PATH"], os.environ["LOADEDMODULES"],
      os.environ["PYTHONPATH"].split(":")[-1])
P
    # conda activate and module load set variables in the same way
    script env ". $RUN/env/bin/activate" \
        "export CONDA_PREFIX=$RUN/env LD_LIBRARY_PATH=/opt/mod/lib LOADEDMODULES=mod/1 PYTHONPATH=/opt/mod/python" \
        "srun -Q python $RUN/which.py"
    is 'what conda and modules have set reaches the ranks' "4 $RUN/env $RUN/env /opt/mod/lib mod/1 /opt/mod/python" \
        "$(batch env -N4 -n4 | count)"
}

# --- batch scripts ----------------------------------------------------------------------------------
way_srun() {
    script srun "srun -Q $found_rank"
    is 'srun in a batch script' "$(two_each horovod)" "$(found_ranks "$(batch srun -N4 -n8 --ntasks-per-node=2)")"
}
way_horovodrun() {
    script horovodrun "srun -Q $found/bin/horovodrun -np 2 $found_rank"
    is 'horovodrun in a step: each task starts a world on its node' \
        "$(places 2 horovod '0 0/2 0/1' '1 1/2 0/1' | sed 's/^/4 /')" "$(found_ranks "$(batch horovodrun -N4 -n4)" | count)"
}
way_mpirun() { # it starts its daemons by srun, and --hvd applies to them
    if ! command -v mpirun.openmpi >/dev/null; then
        skip 'mpirun in a batch script' 'openmpi-bin is not installed'
        return
    fi
    script mpirun "mpirun.openmpi --allow-run-as-root --bind-to none --map-by ppr:2:node $found_rank"
    is 'mpirun in a batch script' "$(two_each openmpi)" "$(found_ranks "$(batch mpirun -N4 -n8 --ntasks-per-node=2)")"
}
way_torchrun() {
    local torch
    torch=$("$ROOT/tests/setup/venv.sh" torch)
    script torchrun "srun -Q $torch/bin/python -W ignore -m torch.distributed.run --nnodes 2 --nproc_per_node 2 \
        --rdzv_backend c10d --rdzv_id 7 --rdzv_endpoint node1:29517 --no_python $found_rank"
    is 'torchrun in a step: its ranks are torchrun'"'"'s' \
        "$(places 4 torchrun '0 0/2 0/2' '1 1/2 0/2' '2 0/2 1/2' '3 1/2 1/2')" \
        "$(found_ranks "$(batch torchrun -N2 -n2 -w 'node[1-2]')")"
}
way_array() {
    script array "srun -Q $found_rank"
    submit array -J array -N4 -n4 --array=0-3
    within 300 has_no_job array
    is 'an array of four: each is a world' "$(one_each horovod | sed 's/^/4 /')" \
        "$(cat "$RUN"/array.out* | sort | count)"
}
together way_layouts way_components way_user way_environment way_srun way_horovodrun way_mpirun way_torchrun way_array
within 120 is_idle

# --- without munge ----------------------------------------------------------------------------------
"$HERE/on" ctl mount --bind /dev/null "$RUN/munge/munge.sock"
out=$(srun --hvd -n1 true 2>&1)
"$HERE/on" ctl umount "$RUN/munge/munge.sock"
has 'without munge a sentence says what to install' "$out" 'hvd: munge cannot encrypt the job token' \
    'install the package munge on the login and compute nodes, give all of them one /etc/munge/munge.key, and start munged'

# shellcheck source=tests/slurm/stops.sh
. "$HERE/stops.sh"

echo "1..$n"
[ "$failed" -eq 0 ]
