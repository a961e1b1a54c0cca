# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Process 1 of the box "node-NAME": one real node, with its own containerd, kubelet and
# kube-proxy. The paths that these programs fix (/run/containerd, /var/lib/kubelet ...) are
# covered by folders of this node in the box's own mount namespace, so that nodes do not meet
# there and nothing of theirs stays on the machine.
export RM_RUN=$1
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
tell_end "$2"
N=$3
STORE=$4 # a containerd root to start from, or empty: see images/store.sh
D=$RM_RUN/$N
P=$RM_RUN/pki

cover() { # cover PATH FOLDER
    mkdir -p "$2"
    mount --bind "$2" "$1"
}
mkdir -p "$D"/{cni,manifests}
cover /var/lib/kubelet "$D/kubelet"
mount --make-shared /var/lib/kubelet
cover /var/log/pods "$D/pods"
cover /var/log/containers "$D/log-containers"
cover /var/lib/cni "$D/cni-state"
mount -t tmpfs tmpfs /run/containerd
mount -t tmpfs tmpfs /run/netns

cat >"$D/cni/10-bridge.conflist" <<EOF
{"cniVersion": "0.4.0", "name": "ringmaster", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "/var/lib/cni/ipam",
            "ranges": [[{"subnet": "$(node_pod_cidr "$N")"}]],
            "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOF
# restrict_oom_score_adj, oomScoreAdj 0: the machine may be a container without
# CAP_SYS_RESOURCE.
cat >"$D/containerd.toml" <<EOF
version = 2
root = "$D/containerd"
state = "/run/containerd/state"
[grpc]
  address = "$D/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$D/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
EOF
cat >"$D/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  x509: {clientCAFile: $P/ca.crt}
  anonymous: {enabled: false}
  webhook: {enabled: true}
authorization: {mode: Webhook}
tlsCertFile: $P/$N.crt
tlsPrivateKeyFile: $P/$N.key
containerRuntimeEndpoint: unix://$D/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$ID-$N
failSwapOn: false
failCgroupV1: false
oomScoreAdj: 0
clusterDNS: [$DNS_IP]
clusterDomain: cluster.local
resolvConf: ""
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 100Mi
  nodefs.available: 1%
  imagefs.available: 1%
  nodefs.inodesFree: 1%
podPidsLimit: -1
# A shared, slow machine: keep the idle load of two kubelets down.
nodeStatusUpdateFrequency: 20s
syncFrequency: 1m
EOF

if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mkdir -p "/sys/fs/cgroup/$ID-$N"
else
    for c in cpu cpuacct cpuset memory devices freezer blkio pids hugetlb systemd; do
        [ ! -d /sys/fs/cgroup/$c ] || mkdir -p "/sys/fs/cgroup/$c/$ID-$N"
    done
    for f in cpuset.cpus cpuset.mems; do
        cat /sys/fs/cgroup/cpuset/$f >"/sys/fs/cgroup/cpuset/$ID-$N/$f"
    done
fi

if [ -n "$STORE" ] && [ ! -e "$D/containerd" ]; then
    # Hard links do not cross file systems; then it is a slower real copy.
    cp -al "$STORE" "$D/containerd.new" 2>/dev/null || {
        rm -rf "$D/containerd.new"
        cp -a "$STORE" "$D/containerd.new"
    }
    find "$D/containerd.new" -maxdepth 2 -name '*.db' | while read -r db; do
        cp --remove-destination "$STORE/${db#"$D/containerd.new/"}" "$db"
    done
    mv "$D/containerd.new" "$D/containerd"
fi
daemon "containerd-$N" containerd -c "$D/containerd.toml"
wait_for 240 "containerd of $N" ctr -a "$D/containerd.sock" version
ctr -a "$D/containerd.sock" -n k8s.io images import "$RM_RUN/pause.tar" >/dev/null
wait_for 240 "the API server" test -e "$RM_RUN/apiserver-ready"
daemon "kubelet-$N" "$RM_RUN/bin/kubelet" --config "$D/kubelet.yaml" \
    --kubeconfig "$P/$N.kubeconfig" --cert-dir "$D/kubelet-pki" \
    --hostname-override "$N" --node-ip "$(node_ip "$N")"
daemon "kube-proxy-$N" "$RM_RUN/bin/kube-proxy" --kubeconfig "$P/kube-proxy.kubeconfig" \
    --hostname-override "$N" --proxy-mode nftables --cluster-cidr "$POD_CIDR" \
    --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0 \
    --conntrack-tcp-timeout-close-wait 0
wait
sleep infinity
