# End-to-end tests of the launchers: real processes, TAP. V=asan and V=tsan work too.
$(eval $(call program,launch-rank,tests/launch/rank.c,rendezvous contract base,))
$(eval $(call program,launch-world,tests/launch/world.c,hvdrt cpu core rendezvous contract base,-lm))
LAUNCH_TEST_BINS = $(O)/bin/hvd-agent $(O)/bin/horovodrun $(O)/bin/launch-rank $(O)/bin/launch-world
# An instrumented horovodrun takes longer than what is promised for the real one.
LAUNCH_TEST_QUICK_S_asan := 2
LAUNCH_TEST_QUICK_S_tsan := 2
.PHONY: test-launch
test-programs: $(LAUNCH_TEST_BINS)
test-launch: $(LAUNCH_TEST_BINS) ## end-to-end tests of horovodrun and hvd-agent
	@BIN=$(abspath $(O)/bin) STATIC_BIN=$(abspath $(BUILD)/stage/bin) \
	    LAUNCH_TEST_QUICK_S=$(or $(LAUNCH_TEST_QUICK_S_$(V)),0.05) \
	    prove -e python3 $(addprefix tests/launch/,horovodrun_test.py flags_test.py config_test.py \
	        peer_test.py signals_test.py agent_test.py metrics_test.py install_test.py)

.PHONY: test-remote
test-remote: $(LAUNCH_TEST_BINS) $(PY_TREE) ## horovodrun over several hosts, by ssh and by hvd-agent serve; needs root
	@tests/setup/deb.sh ssh
	@BIN=$(abspath $(O)/bin) prove -j3 -e python3 tests/launch/remote_failure_test.py \
	        tests/launch/remote_test.py tests/launch/serve_test.py
