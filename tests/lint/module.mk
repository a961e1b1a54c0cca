# make lint runs all checks of tests/lint; the slow ones are incremental
LINT_C := $(shell git ls-files -- 'runtime/*.c' 'operator/*.c' 'spank_plugin/*.c' 2>/dev/null)
LINT_C := $(wildcard $(LINT_C))
LINT_PURE := $(filter runtime/core/%.c runtime/launch/core/%.c operator/core/%.c operator/cli/core/%.c operator/page/core/%.c \
    operator/doc/%.c spank_plugin/submit/core/%.c runtime/contract/%.c runtime/base/%.c runtime/live/%.c runtime/wire/bytes.c \
    runtime/wire/auth_wire.c runtime/control/address.c runtime/world/description.c \
    $(patsubst %,runtime/backend/nccl/%.c,card comm_state fuse exchange dtype),$(LINT_C))
LINT_FLAGS := -std=gnu11 -I. -Iruntime/include -D_GNU_SOURCE '-DHVD_VERSION_STRING="0"' '-DKERNELS_BIN="/dev/null"' '-DRUNTIME_DIR="/opt/ringmaster"' $(shell python3-config --includes 2>/dev/null)
LINT_TIDY := $(patsubst %.c,$(BUILD)/lint/%.tidy,$(LINT_C))

$(BUILD)/lint/%.tidy: %.c .clang-tidy tests/lint/tidy.sh
	@tests/lint/tidy.sh $< $@ $(LINT_FLAGS)
-include $(wildcard $(LINT_TIDY:.tidy=.d))

.PHONY: lint lint-tidy lint-pure lint-ratchet lint-selftest
lint-tidy: $(LINT_TIDY)
lint-pure: $(patsubst %.c,$(O)/%.o,$(LINT_PURE))
lint: ## run all checks of tests/lint (layout, layers, circles, purity, sizes, symbols, names, tidy, cleanup, shell, Python, docs, prose)
	@tests/setup/deb.sh lint
	@$(MAKE) --no-print-directory -s lint-pure
	@for kind in tidy format shell; do if [ -d "$(CACHE)/$$kind" ]; then find "$(CACHE)/$$kind" -type f -mtime +30 -delete; fi; done
	@if command -v clang-tidy >/dev/null; then \
	    export TIDY_VERSION="$$(clang-tidy --version)" TIDY_SEEN="$$(tests/lint/tidy.sh --seen $(LINT_FLAGS))"; \
	    $(MAKE) --no-print-directory -s -j2 lint-tidy; fi
	@tests/lint/run.sh
lint-ratchet: # writes smaller counts of tests/lint/counts.py into tests/lint/ratchet
	@tests/lint/counts.py --lower
lint-selftest: ## test the checks: each finds an offence of its kind
	@tests/lint/selftest.sh
