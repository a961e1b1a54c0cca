$(eval $(call archive,cpu,$(wildcard runtime/backend/cpu/*.c),-O3 -ffp-contract=off))
# One file is compiled for AVX2 + F16C and used only after asking the CPU (reduce.c).
ifneq ($(findstring x86_64,$(shell uname -m)),)
$(O)/runtime/backend/cpu/kernels_avx2.o: XFLAGS := -O3 -ffp-contract=off -mavx2 -mf16c
endif
$(eval $(call unit,cpu,cpu core rendezvous wire contract base,-lm))
