# Ranks that hang, and what hvd-agent says of them.
$(O)/bin/hang-c-rank: $(O)/tests/hang/c_rank.o $(O)/lib/libhvd.so
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $^
$(O)/bin/hang-loop.so: $(O)/tests/hang/loop.o
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -shared -o $@ $^
-include $(O)/tests/hang/c_rank.d $(O)/tests/hang/loop.d
HANG_BINS = $(O)/bin/hang-c-rank $(O)/bin/hang-loop.so $(O)/bin/hvd-agent
.PHONY: test-hang
test-programs: $(HANG_BINS)
test-hang: $(HANG_BINS) python ## hangs of real ranks, and the verdict about each
	@BIN=$(abspath $(O)/bin) PYTHONPATH=$(abspath $(O)/python) \
	    prove --directives --failures --comments -e /usr/bin/python3 $(or $(RM_ONLY),tests/hang/hang_test.py)
