# Sources of the library or of a program alone are not in the archive.
NCCL_SRC := $(filter-out %/image.c %/hvd_gpu.c %/nccl.c,$(wildcard runtime/backend/nccl/*.c))
$(eval $(call archive,nccl,$(NCCL_SRC),-ffp-contract=off))
# The kernels as functions of the CPU: for tests and for the fake driver.
$(eval $(call archive,kernels_cpu,tests/fakes/cuda/kernels_cpu.c,-ffp-contract=off))
# The tests find the fakes first, whatever is installed. RPATH, because RUNPATH applies to the caller of dlopen,
# which is the sanitizer.
$(eval $(call archive,ncclrow,runtime/backend/nccl/nccl.c))
$(eval $(call unit,gpu,ncclrow nccl kernels_cpu cpu core rendezvous wire contract base,-lm -ldl -Wl$(comma)--disable-new-dtags$(comma)-rpath$(comma)$(abspath $(O)/fakes)))
# Worlds of processes on the fakes, through hvd.h.
$(eval $(call unit,hvdgpu,hvdrt ncclrow nccl kernels_cpu cpu core rendezvous wire contract base,-lm -ldl -Wl$(comma)--disable-new-dtags$(comma)-rpath$(comma)$(abspath $(O)/fakes)))

# The kernels' image, one for all variants. KERNELS=none builds one without kernels. If KERNELS is unset, an
# existing image stays, so that `KERNELS=none make && make install` needs no compiler.
KERNEL_DIR := runtime/backend/nccl/kernels
KERNEL_BIN := $(BUILD)/kernels/kernels.bin
$(KERNEL_BIN): $(wildcard $(KERNEL_DIR)/*.cu $(KERNEL_DIR)/*.h) $(KERNEL_DIR)/compile.py tests/setup/venv/nvrtc.txt
	@mkdir -p $(@D)
	@echo "  CUDA  $@"
	$(Q)$(KERNEL_DIR)/compile.py $@ --cache "$(CACHE)/cuda" --nvrtc "tests/setup/venv.sh nvrtc"
ifdef KERNELS
export KERNELS
$(KERNEL_BIN): $(BUILD)/kernels/how
$(BUILD)/kernels/how: kernels-how
	@mkdir -p $(@D)
	@echo "$(KERNELS)" | cmp -s - $@ || echo "$(KERNELS)" >$@
.PHONY: kernels-how
endif
# libhvd.so opens it if there is a driver. It is never unloaded, because its threads may be left behind.
$(eval $(call shared,libhvd_cuda.so,runtime/backend/nccl/nccl.c runtime/backend/nccl/image.c,nccl core wire contract base,-lm -ldl -Wl$(comma)-z$(comma)nodelete,runtime/backend/nccl/libhvd_cuda.map))
# Reports the GPUs of this machine to the agent and horovodrun, which are static.
$(eval $(call program,hvd-gpu,runtime/backend/nccl/hvd_gpu.c,nccl core wire contract base,-lm -ldl))
ALL_BINS += $(O)/lib/libhvd_cuda.so $(O)/bin/hvd-gpu
# It needs only the image's table, not megabytes of kernels.
$(BUILD)/kernels/head.bin: $(KERNEL_BIN)
	$(Q)cat $< /dev/zero | head -c 1024 >$@.$$$$ && mv $@.$$$$ $@
# After the macros, which set XFLAGS of their sources.
$(O)/runtime/backend/nccl/image.o: XFLAGS := -DKERNELS_BIN='"$(KERNEL_BIN)"'
$(O)/runtime/backend/nccl/image.o: $(KERNEL_BIN)
$(O)/runtime/backend/nccl/hvd_gpu.o: XFLAGS := -DKERNELS_BIN='"$(BUILD)/kernels/head.bin"'
$(O)/runtime/backend/nccl/hvd_gpu.o: $(BUILD)/kernels/head.bin
$(addprefix $(O)/unit/gpu_,image_test park_test comm_test order_test register_test abort_test matrix_test nancheck_test codec_test codec_more_test): $(O)/runtime/backend/nccl/image.o
$(patsubst tests/unit/%.c,$(O)/unit/%,$(wildcard tests/unit/hvdgpu_*_test.c)): $(O)/runtime/backend/nccl/image.o
$(O)/unit/gpu_report_test: | $(O)/bin/hvd-gpu
