# Our tables against NVIDIA's own driver libraries; no GPU is needed.
$(eval $(call program,real-driver,tests/drivers/real_driver.c,nccl core wire contract base,-lm -ldl))
.PHONY: test-drivers
test-programs: $(O)/bin/real-driver
test-drivers: $(KERNEL_BIN) $(O)/bin/real-driver $(O)/bin/hvd-gpu $(O)/lib/libhvd_cuda.so ## our tables of the driver against real ones of several releases
	@BIN=$(abspath $(O)/bin) LIB=$(abspath $(O)/lib) KERNELS_BIN=$(abspath $(KERNEL_BIN)) tests/drivers/run.sh
