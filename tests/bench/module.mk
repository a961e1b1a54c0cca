# Peers in one run: tests/bench/run.py rewrites tests/bench/README.md and results.json.
$(eval $(call program,bench_backend,tests/bench/allreduce_backend.c,cpu core rendezvous contract base,))
$(eval $(call program,bench_codec,tests/bench/codec.c,core base,-lm))

MPICC ?= mpicc.openmpi
$(O)/bin/bench_mpi: tests/bench/allreduce_mpi.c tests/bench/measure.h
	@mkdir -p $(@D)
	$(MPICC) $(CPPFLAGS) -O2 -o $@ $<

$(O)/bin/bench_capi: $(O)/tests/bench/allreduce_capi.o $(O)/lib/libhvd.so
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $^
-include $(O)/tests/bench/allreduce_capi.d

.PHONY: bench
bench: ## allreduce against Open MPI and Gloo; rewrites tests/bench/README.md (10 min)
	@tests/setup/deb.sh build bench
	@$(MAKE) --no-print-directory $(O)/bin/bench_backend $(O)/bin/bench_mpi \
	    $(O)/bin/bench_capi $(O)/bin/horovodrun python
	tests/bench/run.py $(O)/bin $(O)/python
.PHONY: bench-codec
bench-codec: $(O)/bin/bench_codec ## speed of compression, one thread
	@$(O)/bin/bench_codec
