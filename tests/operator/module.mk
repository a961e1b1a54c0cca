# The operator against a real control plane; see run.sh.
.PHONY: test-operator
test-operator: $(O)/bin/hvd-operator $(O)/bin/hvd-operator-faults ## hvd-operator against a real API server (root)
	@BIN=$(abspath $(O)/bin) tests/operator/run.sh
