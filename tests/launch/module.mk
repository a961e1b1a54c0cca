# End-to-end tests of the launchers: real processes, TAP.
$(eval $(call program,launch-rank,tests/launch/rank.c,rendezvous contract base,))
LAUNCH_TEST_BINS = $(O)/bin/hvd-agent $(O)/bin/horovodrun $(O)/bin/launch-rank
.PHONY: test-launch
test-launch: $(LAUNCH_TEST_BINS) ## end-to-end tests of horovodrun and hvd-agent (V=asan works too)
	@BIN=$(abspath $(O)/bin) prove -e python3 tests/launch/horovodrun_test.py tests/launch/agent_test.py
