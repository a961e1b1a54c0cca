# What only the library or a program needs is not in the archive.
NCCL_SRC := $(filter-out %/image.c %/hvd_gpu.c %/nccl.c,$(wildcard runtime/backend/nccl/*.c))
$(eval $(call archive,nccl,$(NCCL_SRC),-ffp-contract=off))
$(eval $(call unit,gpu,nccl cpu core rendezvous contract base,-lm -ldl -Wl$(comma)-rpath$(comma)$(abspath $(O)/fakes)))
