# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Process 1 of the box "dns": CoreDNS beside the control plane, behind the Service kube-dns
# (dns.yaml), so that it needs no image. Names of the cluster are not cached, as kubeadm sets it up.
export RM_RUN=$1
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
tell_end "$2"
cat >"$RM_RUN/Corefile" <<EOF
.:53 {
    bind $CP_IP
    errors
    health 127.0.0.1:8053
    ready 127.0.0.1:8054
    kubernetes cluster.local in-addr.arpa {
        kubeconfig $RM_RUN/pki/coredns.kubeconfig
        pods insecure
        ttl 5
    }
    cache 30 {
        disable success cluster.local
        disable denial cluster.local
    }
    loadbalance
}
EOF
daemon coredns "$RM_RUN/bin/coredns" -conf "$RM_RUN/Corefile"
wait
sleep infinity
