# What runs on a GPU: the kernels' unit tests linked to a table that launches them on the device, and programs
# that need no more than libc, so that a variant for glibc 2.17 runs wherever a driver is.
GPU_TESTS := $(patsubst tests/unit/%_test.c,%,$(sort $(wildcard tests/unit/gpu_*kernels_test.c)))
GPU_PROGRAMS := $(addprefix $(O)/gpu/,$(GPU_TESTS))
$(O)/gpu/%.o: tests/unit/%.c $(wildcard tests/gpu/tap/*.h)
	@mkdir -p $(@D)
	@echo "  CC    $(V) $<"
	$(Q)$(CC) $(CPPFLAGS) -Itests/gpu/tap $(CFLAGS) -MMD -MP -c -o $@ $<
-include $(GPU_PROGRAMS:%=%_test.d) $(O)/tests/gpu/kernels_device.d
$(addprefix $(O)/gpu/,$(GPU_TESTS)): $(O)/gpu/%: $(O)/gpu/%_test.o $(O)/tests/gpu/kernels_device.o \
    $(foreach a,nccl cpu core base,$(O)/lib$(a).a)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lm -ldl
# Programs of this folder.
GPU_MORE := nccl_real conform_driver conform_nccl bench_kernels
$(addprefix $(O)/gpu/,$(GPU_MORE)): $(O)/gpu/%: $(O)/tests/gpu/%.o $(foreach a,nccl cpu core base,$(O)/lib$(a).a)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lm -ldl
-include $(GPU_MORE:%=$(O)/tests/gpu/%.d)

# What the tests run: also what setup-build makes, so that no two rows build it at once.
GPU_NEEDS := $(GPU_PROGRAMS) $(addprefix $(O)/gpu/,$(GPU_MORE)) $(FAKES) $(O)/bin/hvd-gpu $(O)/lib/libhvd.so $(O)/lib/libhvd_cuda.so
ifeq ($(V),plain)
test-programs: $(GPU_NEEDS)
endif
.PHONY: test-gpu
test-gpu: $(GPU_NEEDS) ## the GPU backend on a GPU, if there is one, and on the fakes (RM_GPU=fake|gpu)
	@/usr/bin/python3 tests/gpu/run.py --tree $(O)
# BENCH="--smoke": a minute.
.PHONY: bench-gpu
bench-gpu: $(GPU_NEEDS) $(PY_TREE) ## the GPU backend against a copy of the device and against NCCL; writes tests/bench/README.md
	@/usr/bin/env python3 tests/gpu/bench.py --tree $(O) --mode gpu --out $(BUILD)/logs/gpu $(BENCH)
	@/usr/bin/env python3 tests/gpu/bench.py --report $(BUILD)/logs/gpu/bench.json

# What a machine without network is given, ignored by git: the portable runtime, these programs for glibc 2.17
# and the fakes. There: tests/gpu/run.py --tree build/gpu
GPU_CARRY := $(BUILD)/gpu
.PHONY: gpu-carry gpu-carried
gpu-carry: ## build/gpu: what tests and bench of a GPU need on a machine without network
	@tests/setup/deb.sh build
	@tests/setup/venv.sh zig >/dev/null
	@$(MAKE) --no-print-directory V=portable gpu-carried
	@du -sh $(GPU_CARRY)
gpu-carried: $(GPU_NEEDS) $(PY_TREE)
	@rm -rf $(GPU_CARRY)
	@mkdir -p $(GPU_CARRY)/gpu $(GPU_CARRY)/bin $(GPU_CARRY)/lib
	@cp $(filter $(O)/gpu/%,$(GPU_NEEDS)) $(GPU_CARRY)/gpu/
	@cp $(O)/bin/hvd-gpu $(GPU_CARRY)/bin/
	@cp $(O)/lib/libhvd.so $(O)/lib/libhvd_cuda.so $(GPU_CARRY)/lib/
	@cp -r $(O)/fakes $(O)/python $(GPU_CARRY)/
	@for f in libhvd.so libhvd_cuda.so; do ln -sf ../../lib/$$f $(GPU_CARRY)/python/_hvd/$$f; done
	@find $(GPU_CARRY) -type f \( -perm -u+x -o -name '*.so*' \) -exec strip --strip-unneeded {} + 2>/dev/null || true
