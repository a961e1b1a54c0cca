.PHONY: demo demo-down
demo: ## a model trained by `kubectl apply` on a real two-node Kubernetes here (root, Debian 12)
	@tests/demo/demo.sh
demo-down: ## take the demo's cluster down
	@tests/cluster/down
