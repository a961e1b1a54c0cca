# The status page in Debian's Chromium; axe-core is a script in a package of PyPI.
.PHONY: test-page
test-page: $(O)/bin/hvd-operator ## the status page in Debian's Chromium, against recorded answers and the operator
	@tests/setup/deb.sh page
	@AXE=$$(echo "$$(tests/setup/venv.sh axe)"/lib/python3*/site-packages/axe_playwright_python/axe.min.js) \
	    tests/page/page_test.py
	@BIN=$(O)/bin tests/page/page_operator.py
