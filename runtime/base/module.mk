$(eval $(call archive,base,$(wildcard runtime/base/*.c)))
# One file is compiled for the SHA extensions and used only after asking the CPU (sha256.c).
ifneq ($(findstring x86_64,$(shell uname -m)),)
$(O)/runtime/base/sha256_x86.o: XFLAGS := -msha -msse4.1
endif
$(eval $(call unit,base,base))
