.PHONY: test-cli
test-cli: $(O)/bin/kubectl-hvd ## kubectl-hvd against files and recorded answers of kubectl
	@BIN=$(abspath $(O)/bin) tests/cli/cli_test.py
