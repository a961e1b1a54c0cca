# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by every script here: names, paths, messages, and the boxes.
#
# A box is a PID namespace with a mount namespace of its own (and, where asked, a network
# namespace): a bash script is process 1 in it and starts the daemons of one machine. When the
# box's process 1 dies the kernel ends everything in it, containers and all, and its mounts go
# with it; so taking a cluster down is one kill a box and cannot leave a process behind.
#
# RM_RUN (default /tmp/ringmaster-cluster) names a cluster: all its state is below it, and its
# namespaces and cgroups carry a hash of it. Addresses are the same in every cluster, because
# no packet leaves the namespaces.
#
# The variables below are for the scripts that source this file.
# shellcheck disable=SC2034
set -euo pipefail
# No script of ours ends without a word.
trap 'echo "cluster: ${BASH_SOURCE[0]##*/} line $LINENO failed: $BASH_COMMAND" >&2' ERR

CLUSTER_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(cd "$CLUSTER_DIR/../.." && pwd)
RM_RUN=$(realpath -m "${RM_RUN:-/tmp/ringmaster-cluster}")
RM_CACHE=${RM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster}
export RM_RUN RM_CACHE
ID=rm-$(printf %s "$RM_RUN" | sha256sum | cut -c1-6)

NODES=(n0 n1)
CP_IP=172.30.0.1
SERVICE_CIDR=10.96.0.0/16
POD_CIDR=10.244.0.0/16
DNS_IP=10.96.0.10
node_ip() { echo "172.30.0.1${1#n}"; }
node_pod_cidr() { echo "10.244.20${1#n}.0/24"; }

say() { echo "cluster: $*" >&2; }
die() {
    say "$*"
    exit 1
}

# The end of each log: the caller may take the cluster down and delete them.
show_logs() {
    local log
    for log in "$RM_RUN"/log/*.log; do
        [ ! -s "$log" ] || [ "${log##*/}" = audit.log ] || { echo "== ${log##*/}" && tail -n 3 "$log" | cut -c1-300; } >&2
    done
}

# wait_for SECONDS WHAT COMMAND...: polls COMMAND until it succeeds; every 20 s it says that it
# still waits, and at the deadline it ends the script with what it waited for.
wait_for() {
    local limit=$1 what=$2 start=$SECONDS told=$SECONDS
    shift 2
    until "$@" >/dev/null 2>&1; do
        if [ $((SECONDS - start)) -ge "$limit" ]; then
            show_logs
            die "$what: not so after $limit s; see $RM_RUN/log/"
        fi
        if [ -s "$RM_RUN/ended" ]; then
            show_logs
            die "$what: $(tail -1 "$RM_RUN/ended"); see $RM_RUN/log/"
        fi
        if [ $((SECONDS - told)) -ge 20 ]; then
            told=$SECONDS
            say "waiting for $what ($((SECONDS - start)) of at most $limit s)"
        fi
        sleep 0.1
    done
}

# with_progress WHAT COMMAND...: runs a long command with its output in a log file, and says
# every 20 s how long it has been at it; on failure shows the log's end.
with_progress() {
    local what=$1 log start=$SECONDS told=$SECONDS pid rc=0
    shift
    log=$(mktemp)
    "$@" >"$log" 2>&1 &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.5
        if [ $((SECONDS - told)) -ge 20 ]; then
            told=$SECONDS
            say "$what: $((SECONDS - start)) s so far; $(grep -v '^ *$' "$log" | tail -1 | cut -c1-70)"
        fi
    done
    wait "$pid" || rc=$?
    [ $rc -eq 0 ] || { tail -20 "$log" >&2; say "$what: failed with status $rc"; }
    rm -f "$log"
    return $rc
}

# --- boxes ---------------------------------------------------------------------------
box_pid() { cat "$RM_RUN/box/$1" 2>/dev/null; }
# A recorded number counts only while it is our unshare: after a reboot it may be anybody's.
box_alive() {
    local pid
    pid=$(box_pid "$1") && { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null |
        grep -q "^unshare .* $RM_RUN "
}

# box_start NAME NETNS|- SCRIPT ARG...: SCRIPT becomes process 1 of the box.
box_start() {
    local name=$1 netns=$2 script=$3 enter=()
    shift 3
    [ "$netns" = - ] || enter=(nsenter "--net=/run/netns/$netns" --)
    setsid "${enter[@]}" unshare --mount --pid --fork --mount-proc --kill-child -- \
        bash "$CLUSTER_DIR/$script" "$RM_RUN" "$name" "$@" \
        >"$RM_RUN/log/box-$name.log" 2>&1 </dev/null 9>&- &
    echo $! >"$RM_RUN/box/$name"
}

box_stop() {
    local pid init
    if box_alive "$1"; then
        pid=$(box_pid "$1")
        # unshare outlives its process 1, which outlives all else in the box: nothing of it runs on.
        init=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null) || true
        # shellcheck disable=SC2086 # a number and a blank, or nothing
        kill -KILL ${init:-"$pid"} 2>/dev/null || true
        wait_for 60 "the end of $1" box_gone "$pid"
    fi
    rm -f "$RM_RUN/box/$1"
}
box_gone() { ! kill -0 "$1" 2>/dev/null; }

# In a box, first: its script's own end is never wanted either.
tell_end() {
    # shellcheck disable=SC2064 # the name of now
    trap "echo \"box $1 ended with status \$?\" >>'$RM_RUN/ended'" EXIT
}

# In a box: daemon NAME COMMAND... starts one and notes its end, which is never wanted.
daemon() {
    local name=$1
    shift
    (
        "$@" >"$RM_RUN/log/$name.log" 2>&1 </dev/null && rc=0 || rc=$?
        echo "$name ended with status $rc" >>"$RM_RUN/ended"
    ) &
}

netns_exists() { [ -e "/run/netns/$1" ]; }

# api PATH [CURL-OPTION...]: a request to the API server as administrator. API_URL is set in
# the boxes, which do not see the loopback port of the machine.
api() {
    local path=$1
    shift
    curl -sSf --max-time 5 --cacert "$RM_RUN/pki/ca.crt" --cert "$RM_RUN/pki/admin.crt" \
        --key "$RM_RUN/pki/admin.key" "$@" "${API_URL:-$(cat "$RM_RUN/server")}$path"
}
kubectl() { "$RM_RUN/bin/kubectl" --kubeconfig "$RM_RUN/admin.kubeconfig" "$@"; }

# --- what every command checks first -------------------------------------------------
need_root() {
    [ "$(id -u)" = 0 ] || die "the test cluster makes network namespaces and containers: run it as root"
}
need_machine() {
    local c
    command -v apt-get >/dev/null || die "this needs Debian 12 (apt-get not found)"
    unshare --mount --pid --fork true 2>/dev/null ||
        die "this machine forbids mount and PID namespaces (unshare failed): run it in a virtual machine or a privileged container"
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        for c in cpu memory pids; do
            grep -qw $c /sys/fs/cgroup/cgroup.controllers ||
                die "the cgroup controller '$c' is missing in /sys/fs/cgroup/cgroup.controllers: the kubelet cannot run here"
        done
    else
        for c in cpu cpuset memory pids devices freezer; do
            [ -d /sys/fs/cgroup/$c ] ||
                die "neither cgroup v2 nor the v1 hierarchy '$c' is mounted below /sys/fs/cgroup: the kubelet cannot run here"
        done
    fi
}
# Holds the lock of this RM_RUN for as long as the script runs.
take_lock() {
    mkdir -p "$(dirname "$RM_RUN")"
    exec 9>"$RM_RUN.lock"
    flock -w 0 9 || {
        say "another up or down works on $RM_RUN; waiting for it"
        flock -w 300 9 || die "another up or down has held $RM_RUN.lock for 5 minutes"
    }
}
# Two checkouts share the default RM_RUN: the one that started the cluster owns it, for as long
# as that checkout exists.
need_owner() {
    local owner
    [ -e "$RM_RUN/owner" ] || return 0
    owner=$(cat "$RM_RUN/owner")
    [ "$owner" = "$REPO" ] || [ ! -d "$owner" ] ||
        die "the cluster at $RM_RUN belongs to the checkout $owner: take it down there (tests/cluster/down), or set RM_RUN to another directory"
}
is_ours() { [ "$(cat "$RM_RUN/owner" 2>/dev/null)" = "$REPO" ]; }
