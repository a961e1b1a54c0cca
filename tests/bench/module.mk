# Peers in one run: tests/bench/run.py rewrites tests/bench/README.md and results.json.
$(eval $(call program,bench_backend,tests/bench/allreduce_backend.c,cpu core rendezvous contract base,))
$(eval $(call program,bench_codec,tests/bench/codec.c,core base,-lm))
$(eval $(call program,bench_init,tests/bench/init_world.c,hvdrt cpu core rendezvous contract base,-lm))

MPICC ?= mpicc.openmpi
$(O)/bin/bench_mpi: tests/bench/allreduce_mpi.c tests/bench/measure.h
	@mkdir -p $(@D)
	$(MPICC) $(CPPFLAGS) -O2 -o $@ $<
$(O)/bin/bench_mpich: tests/bench/allreduce_mpi.c tests/bench/measure.h
	@mkdir -p $(@D)
	mpicc.mpich $(CPPFLAGS) -O2 -o $@ $<
# Intel MPI runs bench_mpich, whose binary interface it has; oneCCL's wheel has a static library for
# processors only, and no program of its own.
PEERS = $(shell tests/setup/venv.sh peers)
$(O)/bin/bench_oneccl: tests/bench/allreduce_ccl.cpp tests/bench/measure.h
	@mkdir -p $(@D)/intel
	@ln -sfn $(PEERS)/lib/libmpi.so.12 $(@D)/intel/libmpich.so.12
	@ln -sfn $(PEERS)/lib/libmpi.so.12 $(@D)/intel/libmpi.so.12
	g++ -std=c++17 $(CPPFLAGS) -O2 -I/usr/include/$(shell gcc -dumpmachine)/mpich -I$(PEERS)/include -o $@ $< \
	    $(PEERS)/lib/ccl/cpu/lib/libccl.a -L$(PEERS)/lib -Wl,--no-as-needed -l:libmpi.so.12 \
	    -l:libintlc.so.5 -l:libhwloc.so.15 -lpthread -ldl -lrt -Wl,-rpath-link,$(PEERS)/lib

$(O)/bin/bench_capi: $(O)/tests/bench/allreduce_capi.o $(O)/lib/libhvd.so
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $^
-include $(O)/tests/bench/allreduce_capi.d

.PHONY: bench
bench: ## allreduce against MPI, oneCCL and Gloo; rewrites tests/bench/README.md (20 min)
	@tests/setup/deb.sh build bench
	@$(MAKE) --no-print-directory $(O)/bin/bench_backend $(O)/bin/bench_mpi \
	    $(O)/bin/bench_mpich $(O)/bin/bench_oneccl \
	    $(O)/bin/bench_capi $(O)/bin/horovodrun python
	tests/bench/run.py $(O)/bin $(O)/python --peers $(PEERS)
.PHONY: bench-codec
bench-codec: $(O)/bin/bench_codec ## speed of compression, one thread
	@$(O)/bin/bench_codec
