#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test.sh: proves the test cluster itself, in TAP: two nodes, names, service addresses, logs,
# exec, exit codes, RBAC; that a second checkout is refused; that `down` leaves nothing.
# Runs on a cluster of its own, beside any other.
RM_RUN=$(mktemp -d /tmp/ringmaster-test.XXXXXX)
export RM_RUN
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
trap '"$CLUSTER_DIR/down" 2>/dev/null || true; rm -rf "$RM_RUN" "$RM_RUN.lock" "$work"' EXIT
work=$(mktemp -d)
n=0 failed=0
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
# check NAME COMMAND...: one TAP line.
check() {
    local name=$1
    shift
    n=$((n + 1))
    if "$@" >"$work/out" 2>&1; then
        echo "ok $n - $name"
    else
        failed=$((failed + 1))
        echo "not ok $n - $name"
        sed 's/^/# /' "$work/out"
    fi
}
is() { [ "$1" = "$2" ] || { echo "got '$1', expected '$2'"; return 1; }; }
ready() { kubectl wait --for=condition=Ready "pod/$1" --timeout=180s; }
far() { kubectl exec far -- /bin/busybox "$@"; }

image() {
    "$REPO/manifests/images/oci.py" "$1" localhost/busybox:1 \
        --file /bin/busybox=/bin/busybox --link busybox=/bin/sh --dir /tmp:1777
}
image "$work/busybox.tar"
again() { image "$work/again.tar" && cmp "$work/busybox.tar" "$work/again.tar"; }
check "an image archive of the same content has the same bytes" again
unprivileged() { (nobody "$CLUSTER_DIR/up" 2>&1 || true) | grep "run it as root"; }
check "a user who is not root gets an error" unprivileged
check "a cluster comes up" "$CLUSTER_DIR/up" "$work/busybox.tar"
check "status says that all of it is up" "$CLUSTER_DIR/status"
check "a second up finds it there" "$CLUSTER_DIR/up"
kubectl apply -f "$CLUSTER_DIR/pods.yaml" >/dev/null
check "a pod with an init container and a probe is ready on n0" ready web
check "a pod is ready on n1" ready far
resolves() { far nslookup web.web.default.svc.cluster.local 10.96.0.10 | grep -q "Address.*10.244.200"; }
check "a pod's name resolves to its address" wait_for 60 "the name" resolves
page() { is "$(far timeout 10 /bin/busybox wget -q -O- "http://$1/")" "made by init"; }
check "pod to pod across the nodes" page "$(kubectl get pod web -o 'jsonpath={.status.podIP}'):8000"
check "pod to service address" wait_for 60 "the rules of kube-proxy" page 10.96.77.77
logs() { is "$(kubectl logs web)" serving; }
check "logs reach kubectl" wait_for 30 "the log" logs
ended() { is "$(kubectl get pod fails -o 'jsonpath={.status.containerStatuses[0].state.terminated.exitCode}')" 3; }
check "an exit code reaches the status" wait_for 120 "the exit code" ended
said() { is "$(kubectl get pod fails -o 'jsonpath={.status.containerStatuses[0].state.terminated.message}')" why; }
check "a termination message reaches the status" said
refused() { (kubectl --as=system:serviceaccount:default:default get secrets 2>&1 || true) | grep -q forbidden; }
check "RBAC refuses what no rule allows" refused
audited() { grep -q '"verb":"create".*"resource":"pods"' "$RM_RUN/log/audit.log"; }
check "the audit log has the pods' creation" audited
other() {
    local rc=0
    echo "$work" >"$RM_RUN/owner"
    "$CLUSTER_DIR/up" || rc=$?
    "$CLUSTER_DIR/down" && rc=0
    echo "$REPO" >"$RM_RUN/owner"
    [ $rc != 0 ] && grep -c "belongs to the checkout $work" "$work/out" | grep -qx 2
}
check "another checkout is refused, with the owner's name" other
inits=$(cat "$RM_RUN"/box/*)
check "the cluster goes down" "$CLUSTER_DIR/down"
nothing() {
    ! ip netns list | grep "$ID" && ! grep "$RM_RUN" /proc/self/mountinfo &&
        [ -z "$(find /sys/fs/cgroup -maxdepth 2 -name "$ID*")" ] && [ ! -e "$RM_RUN" ] &&
        ! pgrep -af "$RM_RUN/" &&
        ! for pid in $inits; do kill -0 "$pid" 2>/dev/null && echo "pid $pid lives"; done | grep .
}
check "nothing is left: no process, mount, namespace, cgroup, file" nothing
gone() { ("$CLUSTER_DIR/status" || true) | grep -q "no cluster"; }
check "status says that there is no cluster" gone
echo "1..$n"
[ $failed = 0 ]
