// What is chosen here decides the versions of all other modules; helm.sh checks them and their sums.
module ringmaster.dev/tests/cluster/build/helm

go 1.24.0

tool helm.sh/helm/v3/cmd/helm

require (
	helm.sh/helm/v3 v3.19.5
	k8s.io/api v0.34.4
	k8s.io/apiextensions-apiserver v0.34.4
	k8s.io/cli-runtime v0.34.4
	k8s.io/client-go v0.34.4
	k8s.io/kubectl v0.34.4
)
