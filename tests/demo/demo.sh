#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh (make demo): starts with a fresh clone on Debian 12, as root, and trains a model by
# `kubectl apply -f manifests/examples/horovodjob.yaml` on two nodes. The cluster keeps running; a second run uses
# it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../cluster/lib.sh
. "$(dirname "$0")/../cluster/lib.sh"
say() { echo "demo: $*" >&2; }
cd "$REPO"
need_root
"$REPO/tests/demo/bring-up.sh"

say "kubectl apply -f manifests/examples/horovodjob.yaml"
kubectl delete horovodjob demo --ignore-not-found --timeout=120s >/dev/null
wait_for 120 "the end of an earlier demo's pods" \
    sh -c "! '$RM_RUN/bin/kubectl' --kubeconfig '$RM_RUN/admin.kubeconfig' get pods -l ringmaster.dev/job-name=demo -o name | grep -q ."
kubectl apply -f manifests/examples/horovodjob.yaml >&2

# The job's state as it changes, and rank 0's log, both marked.
kubectl get horovodjob demo --watch --no-headers 2>/dev/null | sed -u 's/^/  state | /' &
watcher=$!
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
state() { kubectl get horovodjob demo -o 'jsonpath={.status.state}'; }
is_started() { case $(state) in Running | Succeeded | Failed) ;; *) return 1 ;; esac; }
is_finished() { case $(state) in Succeeded | Failed) ;; *) return 1 ;; esac; }
wait_for 300 "the job's start" is_started
log=$(mktemp)
kubectl logs -f demo-worker-0 -c train 2>&1 | tee "$log" | sed -u 's/^/  log   | /' || true
wait_for 120 "the job's end" is_finished
kill $watcher 2>/dev/null || true

kubectl get horovodjob demo -o wide
kubectl get pods -l ringmaster.dev/job-name=demo -o wide
if [ "$(state)" != Succeeded ]; then
    die "the job failed: $(kubectl get horovodjob demo -o 'jsonpath={.status.conditions[?(@.type=="Failed")].message}')"
fi
accuracy=$(grep -oiE 'accuracy[^0-9]*[01]\.[0-9]+' "$log" | tail -1 | grep -oE '[01]\.[0-9]+')
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.97) }' ||
    die "held-out accuracy $accuracy is below 0.97"
grep -q 'identical weights' "$log" || die "the workers' weights differ; see the log above"
rm -f "$log"

cat >&2 <<EOF

  Look around:   export KUBECONFIG=$RM_RUN/admin.kubeconfig PATH=$RM_RUN/bin:\$PATH
                 kubectl get hvdjob demo -o yaml
                 kubectl describe hvdjob demo
                 kubectl logs demo-worker-1
                 kubectl get pods -A -o wide
  Take it down:  make demo-down

EOF
echo "demo: ok, held-out accuracy $accuracy, identical weights on both workers, $SECONDS s in all"
