# Small changes of the product that no test notices.
SAMPLE ?= 300
SEED   ?= 1
.PHONY: mutants
mutants: ## SAMPLE small changes of the product, and which of them no test notices (hours; SEED, BASE, MUTANTS="options")
	@tests/mutants/run.py --sample $(SAMPLE) --seed $(SEED) $(if $(BASE),--base $(BASE)) $(MUTANTS)
