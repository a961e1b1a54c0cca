# spank_hvd.so, the Slurm plugin. Built where Slurm's and munge's headers are (tests/setup/deb.sh slurm);
# it must be compiled for the Slurm release that loads it.
SLURM_INCLUDE ?= /usr/include
MUNGE_INCLUDE ?= /usr/include
ifneq ($(wildcard $(SLURM_INCLUDE)/slurm/spank.h),)
ifneq ($(wildcard $(MUNGE_INCLUDE)/munge.h),)
SPANK_HAVE := yes
endif
endif

# what needs no Slurm header, and so what the unit tests can link
$(eval $(call archive,spank,$(filter-out spank_plugin/plugin.c spank_plugin/slurm_io.c spank_plugin/seal.c,$(wildcard spank_plugin/*.c))))

ifeq ($(SPANK_HAVE),yes)
$(eval $(call shared,spank_hvd.so,spank_plugin/plugin.c spank_plugin/slurm_io.c spank_plugin/seal.c,spank rendezvous launch core wire contract base,-lmunge -lm,spank_plugin/spank_hvd.map))
ifneq ($(filter plain,$(V)),)
ALL_BINS += $(O)/lib/spank_hvd.so
endif
endif

# the plugin's callbacks against a fake Slurm; the real one is in tests/slurm, with spank_box.so for pyxis
ifeq ($(SPANK_HAVE),yes)
$(eval $(call shared,spank_box.so,tests/fakes/spank_box.c,,,spank_plugin/spank_hvd.map))
test-programs: $(O)/lib/spank_box.so
$(eval $(call archive,spankfake,spank_plugin/plugin.c spank_plugin/slurm_io.c tests/fakes/spank_fake.c))
$(eval $(call unit,spank,spankfake spank rendezvous launch core wire contract base,-lm))
$(eval $(call archive,seal,spank_plugin/seal.c))
$(eval $(call unit,seal,seal base,-lmunge))
endif

# hvd-submit needs no header of Slurm: it runs sbatch.
$(eval $(call archive,submit,$(wildcard spank_plugin/submit/core/*.c)))
$(eval $(call program,hvd-submit,spank_plugin/submit/main.c operator/cli/job_input.c,submit opcli opcore live wire contract base,-ljansson -lyaml))
ALL_BINS += $(O)/bin/hvd-submit
$(eval $(call unit,submit,submit opcli opcore live wire contract base,-ljansson -lyaml))

# where Slurm's plugins are, and the runtime on the nodes (the default of dir= in plugstack.conf, which
# hvd-slurm-check and hvd-submit assume too)
SLURM_LIBDIR ?= /usr/lib/slurm
RUNTIME_DIR  ?= /opt/ringmaster
MANDIR       ?= /usr/share/man
DOCDIR       ?= /usr/share/doc/ringmaster
ENROOT_DIR   ?= /etc/enroot
$(O)/spank_plugin/site.o $(O)/spank_plugin/submit/core/submit_script.o $(O)/runtime/launch/slurm_facts.o: \
    XFLAGS := -DRUNTIME_DIR='"$(RUNTIME_DIR)"'
SPANK_PATHS  := sed -e 's|/usr/lib/slurm|$(SLURM_LIBDIR)|g; s|/opt/ringmaster|$(RUNTIME_DIR)|g'
.PHONY: install-spank
install-spank: $(O)/lib/spank_hvd.so ## install spank_hvd.so, its manual, enroot's hook (DESTDIR, SLURM_LIBDIR, RUNTIME_DIR, MANDIR)
	install -D -m 644 $(O)/lib/spank_hvd.so $(DESTDIR)$(SLURM_LIBDIR)/spank_hvd.so
	install -D -m 755 spank_plugin/enroot/50-ringmaster.sh $(DESTDIR)$(ENROOT_DIR)/hooks.d/50-ringmaster.sh
	install -d $(DESTDIR)$(MANDIR)/man8 $(DESTDIR)$(DOCDIR)
	$(SPANK_PATHS) spank_plugin/spank_hvd.8 >$(DESTDIR)$(MANDIR)/man8/spank_hvd.8
	$(SPANK_PATHS) spank_plugin/plugstack.conf.example >$(DESTDIR)$(DOCDIR)/plugstack.conf.example
	@echo "now add the line of $(DOCDIR)/plugstack.conf.example to plugstack.conf"
.PHONY: install-submit
install: install-submit
install-submit: $(O)/bin/hvd-submit ## install hvd-submit and its manual to PREFIX, under DESTDIR
	@install -D -m 755 $< $(DESTDIR)$(PREFIX)/bin/hvd-submit
	@install -D -m 644 spank_plugin/submit/hvd-submit.1 $(DESTDIR)$(PREFIX)/share/man/man1/hvd-submit.1
