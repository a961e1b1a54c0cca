# What runs on a GPU: the kernels' unit tests linked to a table that launches them on the device, and programs
# that need no more than libc, so that a variant for glibc 2.17 runs wherever a driver is.
GPU_TESTS := $(patsubst tests/unit/%_test.c,%,$(sort $(wildcard tests/unit/gpu_*kernels_test.c)))
GPU_PROGRAMS := $(addprefix $(O)/gpu/,$(GPU_TESTS))
$(O)/gpu/%.o: tests/unit/%.c $(wildcard tests/gpu/tap/*.h)
	@mkdir -p $(@D)
	@echo "  CC    $(V) $<"
	$(Q)$(CC) $(CPPFLAGS) -Itests/gpu/tap $(CFLAGS) -MMD -MP -c -o $@ $<
-include $(GPU_PROGRAMS:%=%_test.d) $(O)/tests/gpu/kernels_device.d
# -pie: kernels_device.c takes each word that looks like an address of a variable for one. At the low addresses of
# a program that is not relocated small numbers look so, too.
$(addprefix $(O)/gpu/,$(GPU_TESTS)): $(O)/gpu/%: $(O)/gpu/%_test.o $(O)/tests/gpu/kernels_device.o \
    $(foreach a,nccl cpu core wire contract base,$(O)/lib$(a).a)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -pie -o $@ $^ -lm -ldl
# Programs of this folder.
GPU_MORE := nccl_real conform_driver conform_nccl bench_kernels
$(addprefix $(O)/gpu/,$(GPU_MORE)): $(O)/gpu/%: $(O)/tests/gpu/%.o $(foreach a,nccl cpu core wire contract base,$(O)/lib$(a).a)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lm -ldl
-include $(GPU_MORE:%=$(O)/tests/gpu/%.d)

GPU_NEEDS := $(GPU_PROGRAMS) $(addprefix $(O)/gpu/,$(filter-out nccl_real,$(GPU_MORE))) $(FAKES) $(O)/bin/hvd-gpu $(O)/lib/libhvd.so $(O)/lib/libhvd_cuda.so

# The kit: a folder that runs alone on a machine with a GPU and no network. It has the portable runtime, these
# programs for glibc 2.17, the fakes, and the scripts at their places in the tree.
GPU_KIT     := $(BUILD)/gpu
GPU_KIT_KIB ?= 61440
GPU_SCRIPTS := $(wildcard tests/gpu/*.py) tests/ports.py tests/bench/resnet50.py \
    $(wildcard tests/python/ranks/capi*.py) $(patsubst %,tests/python/ranks/%.py,checks exact together)
ifeq ($(V),portable)
$(GPU_KIT).tar.gz: $(GPU_NEEDS) $(PY_TREE) $(GPU_SCRIPTS) tests/gpu/first-contact.sh tests/gpu/module.mk
	@rm -rf $@ $(GPU_KIT) && mkdir -p $(GPU_KIT)/gpu $(GPU_KIT)/bin $(GPU_KIT)/lib $(GPU_KIT)/fakes
	@cp $(filter $(O)/gpu/%,$(GPU_NEEDS)) $(GPU_KIT)/gpu/
	@cp $(O)/bin/hvd-gpu $(GPU_KIT)/bin/
	@cp $(filter $(O)/lib/%,$(GPU_NEEDS)) $(GPU_KIT)/lib/
	@cp $(FAKES) $(GPU_KIT)/fakes/
	@cd $(O) && cp --parents $(patsubst $(O)/%,%,$(PY_TREE)) $(abspath $(GPU_KIT))
	@for f in $(notdir $(filter $(O)/lib/%,$(GPU_NEEDS))); do ln -sf ../../lib/$$f $(GPU_KIT)/python/_hvd/$$f; done
	@cp --parents $(GPU_SCRIPTS) $(GPU_KIT) && cp tests/gpu/first-contact.sh $(GPU_KIT)
	@find $(GPU_KIT) -type f \( -path '*/gpu/gpu/*' -o -name hvd-gpu -o -name '*.so*' \) -exec strip --strip-unneeded {} +
	@size=$$(du -sk --apparent-size $(GPU_KIT) | cut -f1); [ "$$size" -le $(GPU_KIT_KIB) ] || \
	    { echo "$(GPU_KIT) has $$size KiB, at most $(GPU_KIT_KIB)"; exit 1; }
	@tar -C $(dir $(GPU_KIT)) --sort=name --owner=0 --group=0 -czf $@ gpu
endif
.PHONY: gpu-carry test-gpu bench-gpu
gpu-carry: ## the GPU tests and benchmarks as one folder for a machine without network: build/gpu, build/gpu.tar.gz
	@tests/setup/deb.sh build
	@tests/setup/venv.sh zig >/dev/null
	@$(MAKE) --no-print-directory V=portable $(GPU_KIT).tar.gz
	@du -sh --apparent-size $(GPU_KIT) $(GPU_KIT).tar.gz
test-gpu: gpu-carry ## the GPU backend on a GPU, if there is one, and on the fakes (RM_GPU=fake|gpu)
	@PYTHON=/usr/bin/python3 $(GPU_KIT)/first-contact.sh --mode $${RM_GPU:-auto} --seconds 0 --out $${OUT:-$(BUILD)/logs/gpu}
# BENCH="--smoke": a minute.
bench-gpu: gpu-carry ## the GPU backend against a copy of the device and against NCCL; writes tests/bench/README.md
	@for part in "" training; do \
	    /usr/bin/env python3 $(GPU_KIT)/tests/gpu/bench.py --mode gpu --out $(BUILD)/logs/gpu $(BENCH) $$part || exit; done
	@/usr/bin/env python3 tests/gpu/bench.py --report $(BUILD)/logs/gpu/bench.jsonl $(BUILD)/logs/gpu/bench-training.jsonl
