# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Process 1 of the box "control-plane": etcd, API server, controller manager and, when
# "scheduler" is the third argument, the scheduler. TLS everywhere, RBAC and the Node
# authorizer, an audit log of every request.
export RM_RUN=$1
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
tell_end "$2"
export API_URL=https://$CP_IP:6443
P=$RM_RUN/pki
B=$RM_RUN/bin

# fsync is off: the data lives as long as the cluster.
daemon etcd "$B/etcd" --name e --data-dir "$RM_RUN/etcd" --unsafe-no-fsync \
    --listen-client-urls https://127.0.0.1:2379 --advertise-client-urls https://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster e=http://127.0.0.1:2380 --log-level warn \
    --cert-file "$P/etcd.crt" --key-file "$P/etcd.key" --client-cert-auth \
    --trusted-ca-file "$P/ca.crt"

cat >"$RM_RUN/audit-policy.yaml" <<EOF
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
EOF
daemon kube-apiserver "$B/kube-apiserver" --etcd-servers https://127.0.0.1:2379 \
    --etcd-cafile "$P/ca.crt" --etcd-certfile "$P/apiserver-client.crt" \
    --etcd-keyfile "$P/apiserver-client.key" \
    --bind-address 0.0.0.0 --advertise-address "$CP_IP" --secure-port 6443 \
    --tls-cert-file "$P/apiserver.crt" --tls-private-key-file "$P/apiserver.key" \
    --client-ca-file "$P/ca.crt" --authorization-mode Node,RBAC \
    --enable-admission-plugins NodeRestriction --allow-privileged \
    --kubelet-client-certificate "$P/apiserver-client.crt" \
    --kubelet-client-key "$P/apiserver-client.key" \
    --kubelet-certificate-authority "$P/ca.crt" \
    --kubelet-preferred-address-types InternalIP \
    --service-account-issuer https://kubernetes.default.svc \
    --service-account-key-file "$P/sa.pub" --service-account-signing-key-file "$P/sa.key" \
    --service-cluster-ip-range "$SERVICE_CIDR" --profiling=false \
    --audit-policy-file "$RM_RUN/audit-policy.yaml" --audit-log-path "$RM_RUN/log/audit.log"

wait_for 240 "the API server" api /readyz
touch "$RM_RUN/apiserver-ready"

# Their client limits would hide those of the operator under test.
config() { echo "--kubeconfig=$P/$1.kubeconfig --authentication-kubeconfig=$P/$1.kubeconfig --authorization-kubeconfig=$P/$1.kubeconfig"; }
# Without nodes tests play the scheduler and name nodes that are not there: about once a minute the collector
# would delete all pods that are bound to such.
controllers='*'
[ "${3:-}" = scheduler ] || controllers+=',-pod-garbage-collector-controller'
# shellcheck disable=SC2046
daemon kube-controller-manager "$B/kube-controller-manager" $(config kube-controller-manager) \
    --service-account-private-key-file "$P/sa.key" --root-ca-file "$P/ca.crt" \
    --use-service-account-credentials --leader-elect=false --cluster-cidr "$POD_CIDR" \
    --service-cluster-ip-range "$SERVICE_CIDR" --kube-api-qps 2000 --kube-api-burst 4000 \
    --controllers "$controllers"
if [ "${3:-}" = scheduler ]; then
    # shellcheck disable=SC2046
    daemon kube-scheduler "$B/kube-scheduler" $(config kube-scheduler) --leader-elect=false \
        --kube-api-qps 2000 --kube-api-burst 4000
fi
wait
sleep infinity
