# The operator as a process: against an API server that misbehaves, and against a real one.
.PHONY: test-operator-fake test-operator test-operator-chaos soak-operator test-upstream test-differ
test-programs: $(O)/bin/hvd-operator-faults
test-operator-fake: $(O)/bin/hvd-operator $(O)/bin/hvd-operator-faults $(O)/bin/hvd-agent ## hvd-operator against an API server that misbehaves
	@BIN=$(abspath $(O)/bin) tests/operator/fake_test.py
test-operator: $(O)/bin/hvd-operator $(O)/bin/kubectl-hvd ## hvd-operator against a real API server (root)
	@BIN=$(abspath $(O)/bin) tests/operator/run.sh
test-operator-chaos: $(O)/bin/hvd-operator $(O)/bin/hvd-operator-faults ## no job lost or run twice, whatever breaks (root)
	@BIN=$(abspath $(O)/bin) tests/operator/chaos.sh
SOAK_SECONDS ?= 600
soak-operator: $(O)/bin/hvd-operator ## the same at random, for SOAK_SECONDS (root)
	@BIN=$(abspath $(O)/bin) tests/operator/chaos.sh --soak $(SOAK_SECONDS)
test-upstream: $(O)/bin/hvd-operator ## mpi-operator's own integration tests against hvd-operator (needs the Go module proxy)
	@BIN=$(abspath $(O)/bin) tests/operator/upstream.sh
test-differ: $(O)/bin/hvd-operator ## the same MPIJobs under mpi-operator and hvd-operator, compared (root, Go module proxy)
	@BIN=$(abspath $(O)/bin) tests/operator/differ.sh
