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
    $(O)/runtime/backend/nccl/image.o $(foreach a,nccl cpu core base,$(O)/lib$(a).a)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lm -ldl
# Programs of this folder.
GPU_MORE := nccl_real conform_driver conform_nccl
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
