CORE_COMPRESS := $(wildcard runtime/core/compress/*.c)
$(eval $(call archive,core,$(wildcard runtime/core/*.c) $(CORE_COMPRESS)))
# Loops over whole tensors; contraction would make results differ between builds, errno of sqrt a call.
$(CORE_COMPRESS:%.c=$(O)/%.o): XFLAGS := -O3 -ffp-contract=off -fno-math-errno
$(eval $(call unit,core,core base,-lm))
