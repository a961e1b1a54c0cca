# shellcheck shell=bash disable=SC2154 # run.sh sources this: its functions and variables
# SPDX-License-Identifier: Apache-2.0
# horovodrun --slurm in an allocation of the real Slurm: an elastic job continues without a rank that was killed, a
# successor joins, and no sample is lost or used twice.
elastic=$RUN/elastic
continued='horovodrun --slurm: an elastic job on 2 nodes loses a rank, continues, and gets another one'
counted='and no sample of it is lost or used twice'
worlds() { cat "$elastic"/rec/*.jsonl 2>/dev/null | grep -c "^\[\"world\",[0-9]*,[0-9]*,$1,"; } # SIZE: joined by ranks
has_worlds() { [ "$(worlds "$1")" -ge "$2" ]; }                                                # SIZE N
elastic_victim() { basename "$elastic"/rec/node2-*.jsonl | cut -d- -f2 | head -1; }
elastic_run() {
    local out=$elastic/out pid rc
    timeout 400 "$HERE/on" ctl /usr/bin/env OMP_NUM_THREADS=1 PYTHONPATH="$RUN/stage/python" \
        salloc -Q --no-kill -N2 --ntasks-per-node=1 "$RUN/stage/bin/horovodrun" --slurm --verbose -np 2 --min-np 1 \
        /usr/bin/python3 "$elastic/train.py" --records "$elastic/rec" --until "$elastic/go" --pace 0.02 >"$out" 2>&1 &
    pid=$!
    if within 120 has_worlds 2 2 && "$HERE/on" node2 kill -9 "$(elastic_victim)" \
        && within 60 has_worlds 1 1 && within 120 has_worlds 2 4; then
        touch "$elastic/go"
    else
        kill "$pid"
    fi
    wait "$pid"
    rc=$?
    has "$continued" "$(cat "$out") code $rc" 'killed by signal 9' 'the job continues in a new world' ' code 0'
    out=$(/usr/bin/python3 "$elastic/check.py" "$elastic/rec" 2>&1) && rc=0 || rc=$?
    has "$counted" "$out code $rc" ' code 0'
}
if [ -n "$why" ]; then
    skip "$continued" "$why"
    skip "$counted" "$why"
else
    rm -rf "$elastic" && cp -r "$ROOT/tests/elastic" "$elastic"
    elastic_run
fi
