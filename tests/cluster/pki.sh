#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pki.sh: one CA, a certificate for each component, and their kubeconfig files, in
# $RM_RUN/pki. EC P-256 keys, a few milliseconds each. What exists is kept.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
mkdir -p "$RM_RUN/pki"
cd "$RM_RUN/pki"
umask 077

key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }

# cert FILE SUBJECT [SAN]
cert() {
    [ -f "$1.crt" ] && return 0
    key "$1"
    openssl req -new -key "$1.key" -subj "$2" -out "$1.csr" 2>/dev/null
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 \
        -extfile <(printf 'keyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n%s' \
            "${3:+subjectAltName=$3}") -out "$1.crt" 2>/dev/null
    rm "$1.csr"
}

# kubeconfig NAME SERVER FILE: everything in the one file.
kubeconfig() {
    cat >"$3" <<EOF
apiVersion: v1
kind: Config
clusters:
- name: ringmaster
  cluster: {server: "$2", certificate-authority-data: $(base64 -w0 ca.crt)}
users:
- name: $1
  user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}
contexts:
- name: ringmaster
  context: {cluster: ringmaster, user: $1}
current-context: ringmaster
EOF
}

if [ "${1:-}" = kubeconfig ]; then # pki.sh kubeconfig NAME SERVER FILE
    shift
    kubeconfig "$@"
    exit 0
fi

if [ ! -f ca.crt ]; then
    key ca
    openssl req -x509 -new -key ca.key -subj /CN=ringmaster-test-ca -days 3650 -out ca.crt
fi
if [ ! -f sa.pub ]; then
    key sa
    openssl ec -in sa.key -pubout -out sa.pub 2>/dev/null
fi
names=DNS:localhost
for n in kubernetes kubernetes.default kubernetes.default.svc kubernetes.default.svc.cluster.local; do
    names+=,DNS:$n
done
cert apiserver /CN=kube-apiserver "$names,IP:127.0.0.1,IP:$CP_IP,IP:10.96.0.1"
cert etcd /CN=etcd IP:127.0.0.1
cert apiserver-client /O=system:masters/CN=kube-apiserver-client
cert admin /O=system:masters/CN=admin
cert coredns /O=system:masters/CN=coredns
cert kube-controller-manager /CN=system:kube-controller-manager
cert kube-scheduler /CN=system:kube-scheduler
cert kube-proxy /CN=system:kube-proxy
for n in "${NODES[@]}"; do
    cert "$n" "/O=system:nodes/CN=system:node:$n" "DNS:$n,IP:$(node_ip "$n")"
done
for n in coredns kube-controller-manager kube-scheduler kube-proxy "${NODES[@]}"; do
    kubeconfig "$n" "https://$CP_IP:6443" "$n.kubeconfig"
done
