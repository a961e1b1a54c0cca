# Random pauses in the tests' own programs: what fails under them has a race. tests/README.md says more.
JITTER_LIB := $(O)/lib/jitter.so
$(O)/tests/jitter/jitter.o: XFLAGS := -U_FORTIFY_SOURCE
$(JITTER_LIB): $(O)/tests/jitter/jitter.o
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) -shared $(LDFLAGS) -o $@ $^ -ldl
-include $(O)/tests/jitter/jitter.d
$(eval $(call program,jitter-probe,tests/jitter/probe.c,,))
.PHONY: test-jitter jitter-selftest
test-programs: $(JITTER_LIB) $(O)/bin/jitter-probe
test-jitter: $(JITTER_LIB) $(UNIT_TESTS) ## unit and rank programs under random pauses (JITTER_SEED=n repeats them)
	@tests/jitter/run.sh $(JITTER_LIB) $(UNIT_TESTS)
jitter-selftest: $(JITTER_LIB) $(O)/bin/jitter-probe ## the library of pauses itself
	@tests/jitter/selftest.sh $(JITTER_LIB) $(O)/bin/jitter-probe
