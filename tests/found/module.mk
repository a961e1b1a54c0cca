# Jobs that others start: mpirun, mpiexec, torchrun; srun's are in tests/slurm. found-rank's two MPI
# forms need Debian's Open MPI and MPICH (Intel MPI runs MPICH's); their tests say so where they are not.
$(O)/bin/found-rank: $(O)/tests/found/rank.o $(O)/lib/libhvd.so
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $^
-include $(O)/tests/found/rank.d
$(O)/bin/found-rank-%: tests/found/rank.c $(O)/lib/libhvd.so
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)mpicc.$* -std=gnu11 -O1 -g -D_GNU_SOURCE -DFOUND_MPI -Iruntime/include -o $@ $< $(O)/lib/libhvd.so \
	    -Wl,-rpath,'$$ORIGIN/../lib'
FOUND_MPI := $(foreach m,openmpi mpich,$(if $(shell command -v mpicc.$(m)),$(O)/bin/found-rank-$(m)))
.PHONY: found-ranks test-found
test-programs: found-ranks
found-ranks: $(O)/bin/found-rank $(FOUND_MPI) $(O)/bin/horovodrun
test-found: found-ranks python ## jobs that mpirun, mpiexec and torchrun start
	@BIN=$(abspath $(O)/bin) prove --directives --failures --comments -e python3 $(or $(RM_ONLY),$(addprefix tests/found/,found_test.py torch_test.py))
