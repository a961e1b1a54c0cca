# The operator as a process: against an API server that misbehaves, and against a real one.
.PHONY: test-operator-fake test-operator test-upstream test-differ
test-programs: $(O)/bin/hvd-operator-faults
test-operator-fake: $(O)/bin/hvd-operator ## hvd-operator against an API server that misbehaves
	@BIN=$(abspath $(O)/bin) tests/operator/fake_test.py
test-operator: $(O)/bin/hvd-operator $(O)/bin/hvd-operator-faults ## hvd-operator against a real API server (root)
	@BIN=$(abspath $(O)/bin) tests/operator/run.sh
test-upstream: $(O)/bin/hvd-operator ## mpi-operator's own integration tests against hvd-operator (needs the Go module proxy)
	@BIN=$(abspath $(O)/bin) tests/operator/upstream.sh
test-differ: $(O)/bin/hvd-operator ## the same MPIJobs under mpi-operator and hvd-operator, compared (root, Go module proxy)
	@BIN=$(abspath $(O)/bin) tests/operator/differ.sh
