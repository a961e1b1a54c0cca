# libhvd.so: everything of the runtime that enters a training process. It is never unloaded
# (nodelete): its thread and its exit handler live as long as the process.
HVD_SRC := $(foreach d,api world engine observe bootstrap control,$(wildcard runtime/$(d)/*.c))
HVD_ARCHIVES := hvdrt cpu core rendezvous wire contract base
$(eval $(call archive,hvdrt,$(HVD_SRC)))
$(eval $(call shared,libhvd.so,$(wildcard runtime/api/api*.c),$(HVD_ARCHIVES),-lm -ldl -Wl$(comma)-z$(comma)nodelete,runtime/libhvd.map))
$(eval $(call unit,hvd,$(HVD_ARCHIVES),-lm))
$(eval $(call unit,bootstrap,$(HVD_ARCHIVES),-lm -ldl))
$(eval $(call unit,control,$(HVD_ARCHIVES),-lm))
ALL_BINS += $(O)/lib/libhvd.so
