# spank_hvd.so, the Slurm plugin. Built where Slurm's and munge's headers are (tests/setup/deb.sh slurm);
# it must be compiled for the Slurm release that loads it.
ifneq ($(wildcard /usr/include/slurm/spank.h),)
ifneq ($(wildcard /usr/include/munge.h),)
SPANK_HAVE := yes
endif
endif

# what needs no Slurm header, and so what the unit tests can link
$(eval $(call archive,spank,$(filter-out spank_plugin/plugin.c spank_plugin/slurm_io.c spank_plugin/seal.c,$(wildcard spank_plugin/*.c))))

ifeq ($(SPANK_HAVE),yes)
$(eval $(call shared,spank_hvd.so,spank_plugin/plugin.c spank_plugin/slurm_io.c spank_plugin/seal.c,spank rendezvous contract base,-lmunge,spank_plugin/spank_hvd.map))
ifneq ($(filter plain,$(V)),)
ALL_BINS += $(O)/lib/spank_hvd.so
endif
endif
$(eval $(call unit,spank,spank contract base))
