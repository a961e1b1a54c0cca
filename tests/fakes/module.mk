# Stand-ins, and tests of callbacks, have parameters that they do not use.
$(patsubst %,$(O)/tests/%.o,fakes/% unit/gpu_% unit/hvdgpu_% unit/tfop_%): CFLAGS += -Wno-unused-parameter
# Libraries that stand in for NVIDIA's in the tests: found by RUNPATH or LD_LIBRARY_PATH.
FAKE_DIR := $(O)/fakes
FAKES :=
# $(eval $(call fake,FILE,SOURCES,LIBS)); their thread-local memory is not the loader's to free, which
# ThreadSanitizer takes for a race
define fake
$(FAKE_DIR)/$(1): $(patsubst %.c,$(O)/%.o,$(2))
	@mkdir -p $$(@D)
	@echo "  LD    $$@"
	$$(Q)$$(CC) -shared $$(LDFLAGS) -Wl,-soname,$(1) -Wl,-rpath,'$$$$ORIGIN' -o $$@ $(patsubst %.c,$(O)/%.o,$(2)) $(3)
$(foreach s,$(2),$(eval $(O)/$(s:.c=.o): XFLAGS += -ftls-model=initial-exec))
-include $(patsubst %.c,$(O)/%.d,$(2))
FAKES += $(FAKE_DIR)/$(1)
endef
FAKE_CUDA_SRC := $(addprefix tests/fakes/cuda/,driver.c capture.c stream.c memory.c module.c spin.c faults.c kernels_cpu.c)
FAKE_CUDA_LIB := -L$(FAKE_DIR) -l:libcuda.so.1
$(eval $(call fake,libcuda.so.1,$(FAKE_CUDA_SRC),-ldl -lm))
$(eval $(call fake,libnvidia-ml.so.1,tests/fakes/cuda/nvml.c,))
$(eval $(call fake,libcublas.so.12,tests/fakes/cuda/cublas.c,$(FAKE_CUDA_LIB)))
$(FAKE_DIR)/libcublas.so.12: $(FAKE_DIR)/libcuda.so.1
$(eval $(call fake,libnccl.so.2,$(filter-out %/nccl_stub.c,$(wildcard tests/fakes/cuda/nccl*.c)),-ldl))
# Copies of it are libnccl.so.2 of any version.
$(eval $(call fake,nccl_stub.so,tests/fakes/cuda/nccl_stub.c,-ldl -Wl$(comma)-soname$(comma)libnccl.so.2))
# TensorFlow's device GPU, for the TensorFlow of processors.
$(eval $(call fake,tf_gpu.so,tests/fakes/tensorflow/gpu.c,$(FAKE_CUDA_LIB) $(O)/stub/libtensorflow_framework.so.2 -lm))
$(FAKE_DIR)/tf_gpu.so: $(FAKE_DIR)/libcuda.so.1 $(O)/stub/libtensorflow_framework.so.2
# A launcher that tests/python drives. Not in FAKES: the kit for GPUs has those.
$(eval $(call program,elastic-leader,tests/fakes/elastic_leader.c tests/lib/elastic_leader.c,rendezvous wire contract base,))
.PHONY: fakes
fakes: $(FAKES) $(O)/bin/elastic-leader
test-programs: fakes
$(filter $(O)/unit/gpu_% $(O)/unit/hvdgpu_%,$(UNIT_TESTS)): | $(FAKES)
