# Random operations of every kind for a long time; tests/soak/soak.py says what.
SOAK_SECONDS ?= 600
SOAK_RANKS   ?= 4
SOAK_SEED    ?= 1
SOAK_TINY    ?= 5000000
SOAK_STRAGGLE_SECONDS ?= 3600
SOAK_BINS = $(O)/bin/horovodrun $(O)/lib/libhvd.so

.PHONY: soak test-soak
test-soak: $(SOAK_BINS) ## a minute of random operations
	@tests/soak/run.sh $(O)
soak: export CAPI_LIBRARY = $(abspath $(O)/lib/libhvd.so)
soak: ## random operations on 4 ranks for 10 minutes, over shared memory and TCP, then five million; the operator; and an hour of equal ranks
	@tests/setup/deb.sh build torch
	@$(MAKE) --no-print-directory $(SOAK_BINS)
	@echo "soak: $(SOAK_SECONDS) s in shared memory, half of it over TCP, then $(SOAK_TINY) small ones (about 20 minutes), and more"
	$(O)/bin/horovodrun -np $(SOAK_RANKS) tests/soak/soak.py --seconds $(SOAK_SECONDS) --seed $(SOAK_SEED)
	HVD_TRANSPORT=tcp $(O)/bin/horovodrun -np $(SOAK_RANKS) tests/soak/soak.py --seconds $$(($(SOAK_SECONDS) / 2)) --seed $(SOAK_SEED)
	$(O)/bin/horovodrun -np 2 tests/soak/soak.py --tiny $(SOAK_TINY)
	@$(MAKE) --no-print-directory soak-operator soak-straggle soak-slurm soak-world
.PHONY: soak-slurm
soak-slurm: found-ranks $(O)/lib/spank_hvd.so ## 200 steps of Slurm in a row and 16 at once leave nothing behind (root; 3 min)
	tests/slurm/steps.sh 200 16
.PHONY: soak-world
soak-world: $(O)/bin/found-rank ## a world of 1,024 real ranks, none with more than 32 sockets (6 GB; 15 s)
	tests/found/big_world.py 128 8
.PHONY: soak-hang
soak-hang: ## each cause of a hang 20 times in real training on the test cluster (root; 7 min)
	HANG_RUNS=20 tests/e2e/run.sh --hang
.PHONY: soak-straggle
soak-straggle: $(addprefix $(O)/bin/,horovodrun launch-pace launch-straggle-watch) ## an hour of equal ranks, none of which may be named (SOAK_STRAGGLE_SECONDS)
	BIN=$(abspath $(O)/bin) tests/launch/straggle_test.py --soak $(SOAK_STRAGGLE_SECONDS)
