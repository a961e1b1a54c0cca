.PHONY: test-packaging
test-packaging: $(O)/bin/hvd-operator stage ## manifests, Helm chart, examples and bad YAML against a real API server (root)
	@BIN=$(abspath $(O)/bin) tests/packaging/run.sh
