# The operator as a process: against an API server that misbehaves, and against a real one.
.PHONY: test-operator-fake test-operator
test-programs: $(O)/bin/hvd-operator-faults
test-operator-fake: $(O)/bin/hvd-operator ## hvd-operator against an API server that misbehaves
	@BIN=$(abspath $(O)/bin) tests/operator/fake_test.py
test-operator: $(O)/bin/hvd-operator $(O)/bin/hvd-operator-faults ## hvd-operator against a real API server (root)
	@BIN=$(abspath $(O)/bin) tests/operator/run.sh
