# What the unit programs share; each takes what it uses.
$(eval $(call archive,unit,$(wildcard tests/lib/*.c)))

.PHONY: test test-full test-programs asan tsan
test-programs: ## programs that several suites run, so that no two suites build them at once
test: ## run every suite of tests/suites (45 minutes the first time, about 23 after)
	@tests/run.py
test-full: ## the same and the long rows: other PyTorch and TensorFlow, tensors over 4 GiB
	@tests/run.py --full
asan: ## unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@SIM_SEEDS=400 $(MAKE) --no-print-directory V=asan unit
tsan: ## unit tests of concurrent parts under ThreadSanitizer
	@$(MAKE) --no-print-directory V=tsan unit
