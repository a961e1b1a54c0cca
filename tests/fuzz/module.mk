# Fuzz targets: under V=fuzz one libFuzzer program each; else one replay program over the corpus.
FUZZ_SECONDS ?= 30
FUZZ_NAMES   := $(patsubst tests/fuzz/%_fuzz.c,%,$(wildcard tests/fuzz/*_fuzz.c))
FUZZ_LIBS    := $(O)/libspank.a $(O)/liblaunch.a $(O)/libhvdrt.a $(O)/libnccl.a $(O)/libcpu.a $(O)/libsubmit.a $(O)/liboppage.a $(O)/libopcli.a $(O)/libopkube.a $(O)/libopcore.a $(O)/liblive.a $(O)/libcore.a $(O)/librendezvous.a $(O)/libwire.a $(O)/libcontract.a $(O)/libbase.a
FUZZ_LDLIBS  := -lcurl -ljansson -lyaml -lsodium
FUZZ_OBJS    := $(FUZZ_NAMES:%=$(O)/tests/fuzz/%_fuzz.o)

$(O)/tests/fuzz/replay.o: XFLAGS := -D'FUZZ_TARGETS(X)=$(patsubst %,X(%),$(FUZZ_NAMES))'
$(O)/tests/fuzz/replay.o: tests/fuzz # whose files are the targets
$(FUZZ_OBJS): XFLAGS := $(if $(filter fuzz,$(V)),,-DFUZZ_REPLAY)
-include $(FUZZ_OBJS:.o=.d) $(O)/tests/fuzz/replay.d

$(FUZZ_NAMES:%=$(O)/fuzz/%): $(O)/fuzz/%: $(O)/tests/fuzz/%_fuzz.o $(FUZZ_LIBS)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(FUZZ_LDLIBS)

$(O)/fuzz/replay: $(O)/tests/fuzz/replay.o $(FUZZ_OBJS) $(FUZZ_LIBS)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(FUZZ_LDLIBS)

.PHONY: fuzz fuzz-build fuzz-run fuzz-replay
fuzz: ## run each fuzz target for FUZZ_SECONDS (30), starting from the corpus
	@$(MAKE) --no-print-directory V=fuzz fuzz-run
fuzz-build: $(FUZZ_NAMES:%=$(O)/fuzz/%)
# What is found lies in $(O)/fuzz/found; copy what is worth keeping into tests/fuzz/corpus.
fuzz-run: fuzz-build
	@tests/fuzz/run.sh $(O)/fuzz $(FUZZ_SECONDS) $(sort $(FUZZ_NAMES))
fuzz-replay: ## run the fuzz corpus under gcc's sanitizers, as TAP
	@$(MAKE) --no-print-directory V=asan fuzz-replay-run
.PHONY: fuzz-replay-run
fuzz-replay-run: $(O)/fuzz/replay
	@$(O)/fuzz/replay tests/fuzz/corpus 2>$(O)/fuzz/replay.log || { tail -30 $(O)/fuzz/replay.log >&2; exit 1; }
