# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What up, down, on, as and run.sh share: where the test cluster lives and how its processes are found.
# RM_SLURM_RUN names the run directory. It must not be under /tmp or /dev/shm: every node has its own.
RUN=${RM_SLURM_RUN:-/run/ringmaster-slurm}
# network namespaces are named after the run directory, so that two clusters can stand side by side
NSP=rms$(printf %s "$RUN" | cksum | cut -c1-5)
# shellcheck disable=SC2034 # used by up
NET=10.231.8 # exists inside our own namespaces only

say() { echo "slurm: $*" >&2; }
die() { say "$*"; exit 1; }

# alive PIDFILE: names a live process (an unreaped zombie does not count)
alive() {
    local p
    [ -s "$1" ] && p=$(cat "$1") && [ -d "/proc/$p" ] \
        && ! grep -q '^State:.Z' "/proc/$p/status" 2>/dev/null
}

# within SECONDS COMMAND...: repeats COMMAND until it succeeds or the time is over
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.05
    done
}

# pids of what up started: daemons carry RM_SLURM=$RUN in their environment, jobs live in our namespaces
ours() {
    local d ns
    for d in /proc/[0-9]*; do
        [ "${d#/proc/}" = $$ ] && continue
        if tr '\0' '\n' 2>/dev/null <"$d/environ" | grep -qx "RM_SLURM=$RUN"; then
            echo "${d#/proc/}"
        fi
    done
    for ns in $(namespaces); do ip netns pids "$ns" 2>/dev/null || true; done
}
namespaces() { ip netns list 2>/dev/null | awk -v p="$NSP-" 'index($1, p) == 1 {print $1}'; }
start_slurmctld() { # [-c]: without its saved state
    # not `ip netns exec`: it remounts /sys and hides the cgroup mounts, and slurmd 22.05 then dies
    RM_SLURM=$RUN SLURM_CONF=$RUN/etc/slurm.conf nsenter --net="/run/netns/$NSP-ctl" unshare -u -m \
        "$RUN/innode" ctl "$RUN" slurmctld "$@"
}
start_node() { # node1: its slurmd, and process 1, which reaps orphans (slurmstepd is one); killing it is a power-off
    local up
    RM_SLURM=$RUN SLURM_CONF=$RUN/etc/slurm.conf setsid nsenter --net="/run/netns/$NSP-$1" \
        unshare -u -m -p --fork --kill-child --mount-proc \
        "$RUN/innode" "$1" "$RUN" bash -c "slurmd -D -N $1 & wait \$!" \
        </dev/null >"$RUN/log/$1.out" 2>&1 &
    up=$!
    within 90 first_child "$up" >/dev/null || die "$1 did not start: $(cat "$RUN/log/$1.out")"
    first_child "$up" >"$RUN/$1.pid"
}
first_child() { # PID: prints its first child, fails while there is none
    local c
    c=$(cat "/proc/$1/task/$1/children" 2>/dev/null) && [ -n "$c" ] && echo "${c%% *}"
}
