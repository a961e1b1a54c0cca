# libhvd.so: everything of the runtime that enters a training process
HVD_SRC := $(wildcard runtime/api/*.c runtime/control/*.c)
$(eval $(call archive,hvdrt,$(HVD_SRC)))
$(eval $(call shared,libhvd.so,runtime/api/api.c,hvdrt cpu core rendezvous contract base,-lm,runtime/libhvd.map))
$(eval $(call unit,hvd,hvdrt cpu core rendezvous contract base,-lm))
ALL_BINS += $(O)/lib/libhvd.so
