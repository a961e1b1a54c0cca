CORE_COMPRESS := $(wildcard runtime/core/compress/*.c)
$(eval $(call archive,core,$(wildcard runtime/core/*.c) $(CORE_COMPRESS)))
# Loops over whole tensors; contraction would make results differ between builds, errno of sqrt a call.
$(CORE_COMPRESS:%.c=$(O)/%.o): XFLAGS := -O3 -ffp-contract=off -fno-math-errno
# One file is compiled for AVX2 + F16C and used only where the caller says that the CPU has them.
ifneq ($(findstring x86_64,$(shell uname -m)),)
$(O)/runtime/core/compress/kernels_avx2.o: XFLAGS += -mavx2 -mf16c
endif
$(eval $(call unit,core,core wire contract base,-lm))
