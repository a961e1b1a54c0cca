# End-to-end tests of the launchers: real processes, TAP. V=asan and V=tsan work too.
$(eval $(call program,launch-rank,tests/launch/rank.c,rendezvous wire contract base,))
$(eval $(call program,launch-world,tests/launch/world.c,hvdrt cpu core rendezvous wire contract base,-lm))
$(eval $(call program,launch-pace,tests/launch/pace.c,hvdrt cpu core rendezvous wire contract base,-lm))
$(eval $(call program,launch-straggle-watch,tests/launch/straggle_watch.c,launch live rendezvous wire contract base,))
$(eval $(call program,launch-strangers,tests/launch/strangers.c,wire contract base,))
$(O)/bin/slow-listen.so $(O)/bin/slow-kill.so: $(O)/bin/slow-%.so: tests/launch/slow_%.c
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -D_GNU_SOURCE -fPIC -shared -o $@ $< -ldl
# A rank on a GPU, with the shared libraries as they are shipped; the fakes stand in for NVIDIA's.
$(eval $(call program,launch-gpu-world,tests/launch/gpu_world.c,,-L$(O)/lib -l:libhvd.so -ldl -Wl$(comma)-rpath$(comma)$(abspath $(O)/lib)))
$(O)/bin/launch-gpu-world: $(O)/lib/libhvd.so | $(O)/lib/libhvd_cuda.so $(FAKES) $(O)/bin/hvd-gpu
.PHONY: gpu-world
gpu-world: $(O)/bin/launch-gpu-world # tests/slurm has its ranks too
LAUNCH_TEST_BINS = $(O)/bin/hvd-agent $(O)/bin/horovodrun $(O)/bin/hvd-rsh $(O)/bin/launch-rank $(O)/bin/launch-world \
                   $(O)/bin/launch-pace $(O)/bin/launch-straggle-watch \
                   $(O)/bin/launch-gpu-world $(O)/bin/launch-strangers $(O)/bin/slow-listen.so $(O)/bin/slow-kill.so
# The same small MPI program by each of Debian's implementations; for hvd-rsh's tests and the test images.
$(O)/bin/mpi-pi-%: tests/launch/mpi_pi.c
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)mpicc.$* -std=gnu11 -O1 -D_GNU_SOURCE -o $@ $<
LAUNCH_MPI := $(foreach m,openmpi mpich,$(if $(shell command -v mpicc.$(m)),$(O)/bin/mpi-pi-$(m)))
.PHONY: test-launch
test-programs: $(LAUNCH_TEST_BINS) $(LAUNCH_MPI)
test-launch: $(LAUNCH_TEST_BINS) ## end-to-end tests of horovodrun and hvd-agent
	@BIN=$(abspath $(O)/bin) STATIC_BIN=$(abspath $(BUILD)/stage/bin) \
	    prove --directives --failures --comments -e python3 $(or $(RM_ONLY),$(addprefix tests/launch/,horovodrun_test.py flags_test.py config_test.py \
	        peer_test.py signals_test.py agent_test.py start_test.py await_test.py world_hosts_test.py scale_test.py \
	        metrics_test.py trainer_test.py report_test.py status_test.py install_test.py gpu_test.py output_test.py \
	        elastic_test.py elastic_discovery_test.py elastic_spares_test.py elastic_takeover_test.py))

.PHONY: test-remote
test-remote: $(LAUNCH_TEST_BINS) $(LAUNCH_MPI) $(PY_TREE) ## horovodrun over several hosts, by ssh and by hvd-agent serve; needs root
	@tests/setup/deb.sh ssh
	@BIN=$(abspath $(O)/bin) prove -j3 --directives --failures --comments -e python3 $(or $(RM_ONLY),$(addprefix tests/launch/, \
	        remote_failure_test.py remote_test.py serve_test.py rsh_test.py rsh_mpi_test.py strangers_test.py elastic_remote_test.py))
