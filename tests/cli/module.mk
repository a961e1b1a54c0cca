.PHONY: test-cli
test-cli: $(O)/bin/kubectl-hvd $(O)/bin/hvd-submit ## kubectl-hvd and hvd-submit on files, kubectl-hvd with recorded answers of kubectl
	@BIN=$(abspath $(O)/bin) tests/cli/cli_test.py
	@BIN=$(abspath $(O)/bin) tests/cli/submit_test.py
