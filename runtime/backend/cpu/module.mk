$(eval $(call archive,cpu,$(wildcard runtime/backend/cpu/*.c),-O3 -ffp-contract=off))
# These files are compiled for newer CPUs and used only after asking the CPU (reduce.c, crc32c.c).
ifneq ($(findstring x86_64,$(shell uname -m)),)
$(O)/runtime/backend/cpu/kernels_avx2.o: XFLAGS := -O3 -ffp-contract=off -mavx2 -mf16c
$(O)/runtime/backend/cpu/crc32c_x86.o: XFLAGS := -O3 -msse4.2 -mpclmul
endif
ifneq ($(findstring aarch64,$(shell uname -m)),)
$(O)/runtime/backend/cpu/crc32c_arm.o: XFLAGS := -O3 -march=armv8-a+crc+crypto
endif
$(eval $(call unit,cpu,cpu core rendezvous wire contract base,-lm))
