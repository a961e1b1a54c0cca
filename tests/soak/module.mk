# Random operations of every kind for a long time; tests/soak/soak.c says what.
SOAK_SECONDS ?= 600
SOAK_RANKS   ?= 4
SOAK_SEED    ?= 1
SOAK_TINY    ?= 10000000
$(O)/bin/soak: $(O)/tests/soak/soak.o $(O)/lib/libhvd.so
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $^ -lm
-include $(O)/tests/soak/soak.d

.PHONY: soak test-soak
test-programs: $(O)/bin/soak
test-soak: $(O)/bin/soak $(O)/bin/horovodrun ## a minute of random operations
	@tests/soak/run.sh $(O)/bin
soak: ## random operations on 4 ranks for 10 minutes, over shared memory and TCP, then ten million; and the operator
	@tests/setup/deb.sh build
	@$(MAKE) --no-print-directory $(O)/bin/soak $(O)/bin/horovodrun
	@echo "soak: $(SOAK_SECONDS) s in shared memory, half of it over TCP, then $(SOAK_TINY) small ones (about 15 minutes)"
	$(O)/bin/horovodrun -np $(SOAK_RANKS) $(O)/bin/soak --seconds $(SOAK_SECONDS) --seed $(SOAK_SEED)
	HVD_TRANSPORT=tcp $(O)/bin/horovodrun -np $(SOAK_RANKS) $(O)/bin/soak --seconds $$(($(SOAK_SECONDS) / 2)) --seed $(SOAK_SEED)
	$(O)/bin/horovodrun -np 2 $(O)/bin/soak --tiny $(SOAK_TINY)
	@$(MAKE) --no-print-directory soak-operator
