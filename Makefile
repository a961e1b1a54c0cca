# Ringmaster: one non-recursive Makefile. Each folder's module.mk lists what it builds. Objects are in
# $(BUILD)/<variant>/, so that plain, asan, tsan and portable exist at the same time.
#
#   V=plain     gcc, the development build; what the unit tests run
#   V=asan      gcc, AddressSanitizer + UndefinedBehaviorSanitizer
#   V=tsan      gcc, ThreadSanitizer
#   V=fuzz      clang, libFuzzer
#   V=portable  zig cc for glibc 2.17 (or static musl): what is installed into other images

V     ?= plain
BUILD ?= build
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ringmaster
O     := $(BUILD)/$(V)
export RM_CACHE := $(CACHE)
export BUILD

VERSION := 0.1.0

# NATIVE=1: what is installed is built for this machine alone, by its compiler with its shared libraries and
# without network, as distributions want it. WERROR= for compilers other than those of Debian 12.
NATIVE ?=
WERROR ?= -Werror

WARN := -Wall -Wextra $(WERROR) -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes \
        -Wold-style-definition -Wwrite-strings -Wpointer-arith -Wformat=2 -Wundef \
        -Wnull-dereference -Wcast-qual -Wimplicit-fallthrough -Wswitch-enum
WARN_GCC := -Wduplicated-cond -Wlogical-op
HARDEN   := -fstack-protector-strong -fno-strict-aliasing
CPPFLAGS += -I. -Iruntime/include -D_GNU_SOURCE -DHVD_VERSION_STRING='"$(VERSION)"'
CFLAGS   := -std=gnu11 -O2 -g -ffile-prefix-map=$(CURDIR)=. -fPIC -fvisibility=hidden -pthread $(WARN) $(HARDEN)
LDFLAGS  := -pthread -Wl,-z,relro,-z,now

# Objects are kept between clones (ccache, where it is installed), so paths in them are relative.
CCACHE   := $(shell command -v ccache)
export CCACHE_DIR := $(CACHE)/ccache
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_MAXSIZE := 1G
CC_plain := $(CCACHE) gcc
CC_asan  := $(CCACHE) gcc
CC_tsan  := $(CCACHE) gcc
CC_fuzz  := $(CCACHE) clang
ZIG          := $(CACHE)/venv/zig/bin/python -m ziglang cc
CC_portable  := $(ZIG) -target x86_64-linux-gnu.2.17
CC_static    := $(ZIG) -target x86_64-linux-musl -static
CFLAGS_plain := $(WARN_GCC) -D_FORTIFY_SOURCE=2
CFLAGS_asan  := $(WARN_GCC) -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
CFLAGS_tsan  := $(WARN_GCC) -O1 -fsanitize=thread
CFLAGS_fuzz  := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
CFLAGS_portable := -fno-sanitize=undefined
CFLAGS_static   := -fno-sanitize=undefined -DNDEBUG
LDFLAGS_asan := -fsanitize=address,undefined
LDFLAGS_tsan := -fsanitize=thread
LDFLAGS_fuzz := -fsanitize=address,undefined
CC     := $(CC_$(V))
CFLAGS += $(CFLAGS_$(V)) $(EXTRA_CFLAGS)
LDFLAGS += $(LDFLAGS_$(V))

# VERBOSE=1 shows the commands.
Q := $(if $(VERBOSE),,@)

comma      := ,
ALL_BINS   :=
UNIT_TESTS :=

# --- macros used by the module.mk files -------------------------------------------
# $(eval $(call archive,NAME,SOURCES[,extra CPPFLAGS]))  -> $(O)/libNAME.a
define archive
$(O)/lib$(1).a: $(patsubst %.c,$(O)/%.o,$(2))
	@rm -f $$@; ar rcs $$@ $$^
$(foreach s,$(2),$(eval $(O)/$(s:.c=.o): XFLAGS := $(3)))
-include $(patsubst %.c,$(O)/%.d,$(2))
endef

# $(eval $(call program,NAME,SOURCES,ARCHIVES in link order,LIBS[,extra CPPFLAGS])) -> $(O)/bin/NAME
define program
$(O)/bin/$(1): $(patsubst %.c,$(O)/%.o,$(2)) $(foreach a,$(3),$(O)/lib$(a).a)
	@mkdir -p $$(@D)
	@echo "  LD    $$@"
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $$^ $(4)
$(foreach s,$(2),$(eval $(O)/$(s:.c=.o): XFLAGS := $(5)))
-include $(patsubst %.c,$(O)/%.d,$(2))
endef

# $(eval $(call shared,FILE.so,SOURCES,ARCHIVES,LIBS,MAP[,extra CPPFLAGS])) -> $(O)/lib/FILE.so
define shared
$(O)/lib/$(1): $(patsubst %.c,$(O)/%.o,$(2)) $(foreach a,$(3),$(O)/lib$(a).a) $(5)
	@mkdir -p $$(@D)
	@echo "  LD    $$@"
	$$(Q)$$(CC) -shared $$(LDFLAGS) -Wl,-soname,$(1) -Wl,--version-script=$(5) -o $$@ \
	    $(patsubst %.c,$(O)/%.o,$(2)) $(foreach a,$(3),$(O)/lib$(a).a) $(4)
$(foreach s,$(2),$(eval $(O)/$(s:.c=.o): XFLAGS := $(6)))
-include $(patsubst %.c,$(O)/%.d,$(2))
endef

# $(eval $(call unit,PREFIX,ARCHIVES,LIBS)): every tests/unit/PREFIX_*_test.c is one TAP program. What it uses
# of tests/lib is linked from libunit.a.
define unit
$(foreach t,$(wildcard tests/unit/$(1)_*_test.c),$(eval $(call unit1,$(notdir $(t:.c=)),$(t),$(2),$(3))))
endef
define unit1
$(O)/unit/$(1): $(patsubst %.c,$(O)/%.o,$(2)) $(foreach a,unit $(3),$(O)/lib$(a).a)
	@mkdir -p $$(@D)
	@echo "  LD    $$@"
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $$^ -lcmocka $(4)
-include $(patsubst %.c,$(O)/%.d,$(2))
UNIT_TESTS += $(O)/unit/$(1)
endef

$(O)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $(V) $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(XFLAGS) -MMD -MP -c -o $@ $<

.DEFAULT_GOAL := all
include $(sort $(wildcard tests/module.mk runtime/*/module.mk runtime/*/*/module.mk operator/module.mk spank_plugin/module.mk packaging/module.mk manifests/images/module.mk tests/*/module.mk))

.PHONY: all unit clean help
all: $(ALL_BINS) ## build everything for development (gcc, Debian libraries)
# ThreadSanitizer checks the threads of one process. Pure code has none, and neither has a program that
# does not call pthread_create (its ranks are processes), so both are left out.
UNIT_RUN := $(UNIT_TESTS)
ifeq ($(V),tsan)
UNIT_TESTS := $(filter-out $(O)/unit/core_% $(O)/unit/contract_%,$(UNIT_TESTS))
# Values of many cases; their threads are those of gpu_matrix_test and gpu_codec_test.
UNIT_TESTS := $(filter-out $(O)/unit/gpu_codec_more_test,$(UNIT_TESTS))
UNIT_RUN = $(shell for p in $(UNIT_TESTS); do nm -Du $$p | grep -q ' pthread_create' && echo $$p; done)
endif
unit: $(UNIT_TESTS) ## build and run the unit tests of variant V
	@CMOCKA_MESSAGE_OUTPUT=TAP prove -j4 --timer --directives --failures --comments $(or $(RM_ONLY),$(UNIT_RUN))
clean: ## remove the build folder (the cache outside the tree stays)
	rm -rf $(BUILD)
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' Makefile $(sort $(wildcard */module.mk */*/module.mk)) \
	    | sed -E 's/:.*## /\t/' | sort | expand -t 16
