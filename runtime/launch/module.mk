# The two launchers, hvd-agent and horovodrun (= perseusrun).
LAUNCH_SRC := $(filter-out runtime/launch/agent_main.c runtime/launch/horovodrun_main.c,\
                $(wildcard runtime/launch/*.c runtime/launch/core/*.c) \
                $(if $(filter static,$(V)),$(wildcard runtime/launch/static/*.c)))
LAUNCH_LIBS := launch live rendezvous wire contract base
$(eval $(call archive,launch,$(LAUNCH_SRC)))
# jansson reads reports of trainers. It is linked in like libyaml, below.
LIBJANSSON := $(if $(NATIVE),-ljansson,$(shell gcc -print-file-name=libjansson.a))
$(O)/runtime/launch/trainer_json.o: XFLAGS := -idirafter /usr/include
# libsodium encrypts what may hold secrets. It is linked in like libyaml, below.
LIBSODIUM := $(if $(NATIVE),-lsodium,$(shell gcc -print-file-name=libsodium.a))
$(O)/runtime/launch/seal.o: XFLAGS := -idirafter /usr/include
$(eval $(call program,hvd-agent,runtime/launch/agent_main.c,$(LAUNCH_LIBS),$(LIBSODIUM) $(LIBJANSSON)))
# libyaml linked in: the shipped horovodrun needs nothing of the image that it starts in. The object is
# glibc's, but its parser calls only what ISO C has, so it goes into the static musl program too (which
# would not link otherwise). -idirafter: zig's own libc headers come first.
LIBYAML := $(if $(NATIVE),-lyaml,$(shell gcc -print-file-name=libyaml.a))
$(O)/runtime/launch/config_file.o: XFLAGS := -idirafter /usr/include
$(eval $(call program,horovodrun,runtime/launch/horovodrun_main.c,$(LAUNCH_LIBS),$(LIBYAML) $(LIBSODIUM) $(LIBJANSSON)))
$(eval $(call unit,launch,$(LAUNCH_LIBS) core wire base,$(LIBYAML) $(LIBSODIUM) $(LIBJANSSON) -lm))
# Other names of hvd-agent.
AGENT_NAMES := hvd-rsh hvd-status hvd-slurm-check
ALL_BINS += $(O)/bin/hvd-agent $(O)/bin/horovodrun $(AGENT_NAMES:%=$(O)/bin/%)
$(AGENT_NAMES:%=$(O)/bin/%): $(O)/bin/hvd-agent
	@ln -sfn hvd-agent $@

# The installed tree, as it is under /opt/ringmaster in the runtime image. The launchers are static
# (musl): they start in any image, also one without libc, and what they need of libc is little.
STAGE := $(BUILD)/stage
STATIC_V := $(if $(NATIVE),plain,static)
STATIC_BINS := $(BUILD)/$(STATIC_V)/bin/hvd-agent $(BUILD)/$(STATIC_V)/bin/horovodrun
.PHONY: stage stage-tools stage-bin install demo-local
stage-tools:
	@[ -n "$(NATIVE)" ] || { tests/setup/deb.sh build && tests/setup/venv.sh zig >/dev/null; }
stage-bin: stage-tools
	@$(MAKE) --no-print-directory V=$(STATIC_V) $(STATIC_BINS)
	@mkdir -p $(STAGE)/bin
	@for p in hvd-agent horovodrun; do \
	    [ $(STAGE)/bin/$$p -nt $(BUILD)/$(STATIC_V)/bin/$$p ] || \
	    { strip -o $(STAGE)/bin/.$$p $(BUILD)/$(STATIC_V)/bin/$$p && mv -f $(STAGE)/bin/.$$p $(STAGE)/bin/$$p; } || exit; done
	@ln -sfn horovodrun $(STAGE)/bin/perseusrun
	@for p in $(AGENT_NAMES); do ln -sfn hvd-agent $(STAGE)/bin/$$p; done
stage: stage-bin stage-python ## the installed tree: portable runtime and launchers in $(BUILD)/stage
	@mkdir -p $(STAGE)/lib
	@cmp -s $(STAGE)/python/_hvd/libhvd.so $(STAGE)/lib/libhvd.so \
	    || cp $(STAGE)/python/_hvd/libhvd.so $(STAGE)/lib/libhvd.so
	@ln -sfn ../python/_hvd/libhvd_cuda.so $(STAGE)/lib/libhvd_cuda.so
	@[ $(STAGE)/bin/hvd-gpu -nt $(BUILD)/$(PORTABLE_V)/bin/hvd-gpu ] || \
	    { strip -o $(STAGE)/bin/.hvd-gpu $(BUILD)/$(PORTABLE_V)/bin/hvd-gpu && mv -f $(STAGE)/bin/.hvd-gpu $(STAGE)/bin/hvd-gpu; }

PREFIX ?= /usr/local
# The tree goes to PREFIX/lib/ringmaster whole, since its parts find each other by their places.
install: stage ## install runtime and launchers to PREFIX (default /usr/local), under DESTDIR
	@$(STAGE)/bin/hvd-agent --version >/dev/null
	@mkdir -p $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/ringmaster \
	    $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/man/man1 \
	    $(DESTDIR)$(PREFIX)/share/man/man7 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	@$(STAGE)/bin/hvd-agent install $(DESTDIR)$(PREFIX)/lib/ringmaster
	@for p in horovodrun perseusrun hvd-agent $(AGENT_NAMES) hvd-gpu; do \
	    ln -sfn ../lib/ringmaster/bin/$$p $(DESTDIR)$(PREFIX)/bin/$$p; done
	@for f in libhvd.so libhvd_cuda.so; do ln -sfn ringmaster/lib/$$f $(DESTDIR)$(PREFIX)/lib/$$f; done
	@install -m 644 runtime/include/hvd.h $(DESTDIR)$(PREFIX)/include/hvd.h
	@install -m 644 runtime/launch/horovodrun.1 runtime/launch/hvd-agent.1 \
	    runtime/launch/hvd-status.1 runtime/launch/hvd-slurm-check.1 runtime/backend/nccl/hvd-gpu.1 \
	    $(DESTDIR)$(PREFIX)/share/man/man1/
	@install -m 644 runtime/hvd-environment.7 $(DESTDIR)$(PREFIX)/share/man/man7/
	@ln -sfn horovodrun.1 $(DESTDIR)$(PREFIX)/share/man/man1/perseusrun.1
	@ln -sfn hvd-agent.1 $(DESTDIR)$(PREFIX)/share/man/man1/hvd-rsh.1
	@for p in horovodrun hvd-agent; do install -m 644 runtime/launch/$$p.bash \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$p; done
	@ln -sfn horovodrun $(DESTDIR)$(PREFIX)/share/bash-completion/completions/perseusrun

demo-local: ## train a model on 2 ranks of this machine with horovodrun, without a cluster
	@runtime/launch/demo-local.sh $(STAGE) "$(MAKE)"
