# shellcheck shell=bash disable=SC2034,SC2001 # the suites that source this use its functions and variables
# SPDX-License-Identifier: Apache-2.0
# What run.sh, ways.sh and steps.sh share: TAP, a cluster with the built plugin, commands on it. They set HERE.
ROOT=$(cd "$HERE/../.." && pwd)
# shellcheck source=tests/slurm/lib.sh
. "$HERE/lib.sh"
BUILD=$(cd "$ROOT" && realpath -m "${BUILD:-build}")
PLUGIN=${PLUGIN:-$BUILD/plain/lib/spank_hvd.so}
STAGE=$BUILD/stage
n=0 failed=0
unset TMPDIR # of the row: tasks would get it, and those of other users warn that it is not theirs

ok() { n=$((n + 1)); echo "ok $n - $1"; }
skip() { n=$((n + 1)); echo "ok $n - $1 # SKIP $2"; }
not_ok() {
    n=$((n + 1)) failed=$((failed + 1))
    echo "not ok $n - $1"
    sed 's/^/#   /' <<<"$2"
}
is() { # NAME EXPECTED ACTUAL
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "expected:"$'\n'"$2"$'\n'"got:"$'\n'"$3"; fi
}
has() { # NAME ACTUAL WORD...: each word is in it
    local name=$1 text=$2 w
    shift 2
    for w in "$@"; do
        [[ $text == *"$w"* ]] || { not_ok "$name" "not there: $w"$'\n'"in: $text"; return; }
    done
    ok "$name"
}
# FUNCTION...: all at once, each in a process of its own; their tests are printed in this order
# shellcheck disable=SC2030,SC2031 # each process counts its own, the loop counts all
together() {
    local f line pids=()
    for f; do
        (n=0 failed=0 && "$f" && echo "end of $f") >"$RUN/$f.tap" &
        pids+=($!)
    done
    wait "${pids[@]}"
    for f; do
        while IFS= read -r line; do
            case $line in
                'ok '*) ok "${line#ok * - }" ;;
                'not ok '*) n=$((n + 1)) failed=$((failed + 1)) && echo "not ok $n - ${line#not ok * - }" ;;
                "end of $f") continue 2 ;;
                *) echo "$line" ;;
            esac
        done <"$RUN/$f.tap"
        not_ok "$f" 'it ended early'
    done
}
bail() {
    skip "spank_hvd.so on a real Slurm" "$1"
    echo "1..$n"
    exit 0
}
ctl() { timeout 400 "$HERE/on" ctl "$@"; }
srun() { ctl srun -Q "$@"; }
sorted() { sort -n | sed '/^$/d'; }
plugstack() { echo "required $RUN/plugin/spank_hvd.so $*" >"$RUN/etc/plugstack.conf"; }
finish() { # the daemons' logs of a failure stay in build/logs/slurm-daemons
    if [ "$failed" -gt 0 ]; then
        install -d "$BUILD/logs/slurm-daemons"
        cp -r "$RUN/log/." "$BUILD/logs/slurm-daemons"
    fi
    "$HERE/down" >&2
}
# NODES: a cluster of that many, which ends with the suite; or the reason why this machine has none
cluster() {
    [ "$(id -u)" = 0 ] || bail "needs root: nodes are network and PID namespaces"
    for p in slurmctld slurmd srun munged; do
        command -v "$p" >/dev/null || bail "$p is not installed (tests/setup/deb.sh slurm)"
    done
    unshare --net --mount --pid --fork true 2>/dev/null || bail "this machine does not allow namespaces"
    [ -f "$PLUGIN" ] || { echo "Bail out! $PLUGIN is not built (make all)"; exit 1; }
    trap finish EXIT
    "$HERE/down" >&2
    "$HERE/up" "$1" || { echo "Bail out! Slurm did not start"; exit 1; }
    install -d "$RUN/plugin"
    cp "$PLUGIN" "$RUN/plugin/"
    if [ -d "$STAGE/python" ]; then cp -r "$STAGE" "$RUN/stage"; fi
    RUNDIR=$RUN/steps # of the plugin; the default would be shared with a Slurm of this machine
    install -d "$RUN/empty"
    conf=(run_dir="$RUNDIR" dir="$RUN/empty")
    install -d "$RUN/empty/python/_hvd" "$RUN/empty/bin" # a runtime of the plugin's version that has no code
    version=$(grep -aoP '@\(#\)spank_hvd \K[0-9][^ ]*' "$PLUGIN")
    echo "RINGMASTER_VERSION = '$version'" >"$RUN/empty/python/_hvd/_version.py"
    plugstack "${conf[@]}"
    cat >"$RUN/place" <<'P'
#!/bin/bash
echo "$HOROVOD_RANK/$HOROVOD_SIZE local $HOROVOD_LOCAL_RANK/$HOROVOD_LOCAL_SIZE cross $HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE $HOROVOD_HOSTNAME=$(hostname)"
P
    chmod 755 "$RUN/place"
}
# HOST...: of each its processes by name, listening ports by program, and files where steps could leave some
inventory() {
    local h
    for h; do
        ip netns pids "$NSP-$h" | sed 's,.*,/proc/&/comm,' | xargs -r cat 2>/dev/null \
            | grep -vxE 'cat|bash' | sort | sed "s/^/$h process /"
        "$HERE/on" "$h" ss -Hltn | awk -v h="$h" '{print h, "port", $4}' | sort
        "$HERE/on" "$h" ss -Hlx | awk -v h="$h" '{print h, "socket", $5}' | sort
        "$HERE/on" "$h" find /dev/shm /tmp "$RUN/spool-$h" -mindepth 1 2>/dev/null | sed "s/^/$h file /" | sort
    done
    find "$RUNDIR" -mindepth 1 2>/dev/null | sed 's/^/file /'
}
settle() { # HOST...: sets before, an inventory that is twice the same
    before=
    within 60 inventory_stays "$@"
}
inventory_stays() {
    local now
    now=$(inventory "$@")
    [ "$now" = "$before" ] || { before=$now && return 1; }
}
is_as_before() { [ "$(inventory "$@")" = "$before" ]; }
left_nothing() { # NAME HOST...: since settle
    local name=$1
    shift
    if within 60 is_as_before "$@"; then ok "$name"; else not_ok "$name" "$(diff <(echo "$before") <(inventory "$@"))"; fi
}
# copies of the ranks, for nodes have their own /tmp
found_up() {
    found=$RUN/found found_rank=$RUN/found/bin/found-rank
    install -d "$found/bin" "$found/lib"
    cp "$BUILD"/plain/bin/{found-rank*,horovodrun} "$found/bin/" && cp "$BUILD/plain/lib/libhvd.so" "$found/lib/"
}
found_ranks() { sed 's/^\[[^]]*\]\(<stdout>\)\?:\?//' <<<"$1" | grep '^rank ' | sort; }
