# run.py measures all peers in one run and writes its tables to build/bench.
$(eval $(call program,bench_backend,tests/bench/allreduce_backend.c,cpu core rendezvous wire contract base,))
$(eval $(call program,bench_codec,tests/bench/codec.c,core wire contract base,-lm))
$(eval $(call program,bench_memory,tests/bench/memory.c,,))
$(eval $(call program,bench_path,tests/bench/path.c,,))

MEASURE := tests/bench/measure.h tests/bench/timing.h
$(O)/bin/bench_mpi $(O)/bin/bench_mpich: tests/bench/allreduce_mpi.c $(MEASURE)
$(O)/bin/bench_hello_mpi $(O)/bin/bench_hello_mpich: tests/bench/start_mpi.c tests/bench/stamp.h
$(addprefix $(O)/bin/bench_,mpi mpich hello_mpi hello_mpich):
	@mkdir -p $(@D)
	mpicc.$(if $(filter %mpich,$@),mpich,openmpi) $(CPPFLAGS) -O2 -o $@ $<
# Intel MPI runs bench_mpich (same binary interface). The wheel of oneCCL has only a static CPU library
# and no benchmark program.
PEERS = $(shell tests/setup/venv.sh peers)
$(O)/bin/bench_oneccl: tests/bench/allreduce_ccl.cpp $(MEASURE)
	@mkdir -p $(@D)/intel
	@ln -sfn $(PEERS)/lib/libmpi.so.12 $(@D)/intel/libmpich.so.12
	@ln -sfn $(PEERS)/lib/libmpi.so.12 $(@D)/intel/libmpi.so.12
	g++ -std=c++17 $(CPPFLAGS) -O2 -I/usr/include/$(shell gcc -dumpmachine)/mpich -I$(PEERS)/include -o $@ $< \
	    $(PEERS)/lib/ccl/cpu/lib/libccl.a -L$(PEERS)/lib -Wl,--no-as-needed -l:libmpi.so.12 \
	    -l:libintlc.so.5 -l:libhwloc.so.15 -lpthread -ldl -lrt -Wl,-rpath-link,$(PEERS)/lib

$(O)/bin/bench_capi: $(O)/tests/bench/allreduce_capi.o $(O)/lib/libhvd.so
$(O)/bin/bench_ring: $(O)/tests/bench/ring_capi.o $(O)/lib/libhvd.so
$(O)/bin/bench_step: $(O)/tests/bench/step_capi.o $(O)/lib/libhvd.so
$(O)/bin/bench_start: $(O)/tests/bench/start_capi.o $(O)/lib/libhvd.so
$(O)/bin/bench_capi $(O)/bin/bench_ring $(O)/bin/bench_step $(O)/bin/bench_start:
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $^
-include $(patsubst %,$(O)/tests/bench/%.d,allreduce_capi ring_capi step_capi start_capi)

# BENCH=--only=step,queue runs parts; run.py --help lists all. A peer that is missing is reported and left out.
.PHONY: bench
bench: ## against MPI, oneCCL, Gloo and Horovod; tables in build/bench (35 min; BENCH=--only=step,queue,memory: 5)
	@tests/setup/deb.sh build mpi bench
	@$(MAKE) --no-print-directory $(addprefix $(O)/bin/bench_,backend mpi mpich capi step memory hello_mpi \
	    hello_mpich start) $(O)/bin/horovodrun python
	@$(MAKE) --no-print-directory $(O)/bin/bench_oneccl || echo "bench: without Intel MPI and oneCCL" >&2
	@horovod=$$(tests/setup/horovod.sh) || echo "bench: without the original Horovod" >&2; \
	    tests/bench/run.py $(O)/bin $(O)/python --peers "$(PEERS)" --horovod "$$horovod" \
	    --torch "$$(tests/setup/venv.sh torch)" --tensorflow "$$(tests/setup/venv.sh tf)" \
	    --horovod-tf "$$(tests/setup/horovod.sh tf)" $(BENCH)
	@[ -n "$(BENCH)" ] || $(MAKE) --no-print-directory bench-operator
# OPERATOR_BENCH='--only=1x8,200x8 --kinds=HorovodJob' measures parts.
.PHONY: bench-operator
OPERATOR_BENCH ?= --peer
bench-operator: $(O)/bin/hvd-operator ## the operator against mpi-operator on 100 fake nodes (root; 35 min with the peer)
	@tests/bench/operator.sh $(O)/bin $(OPERATOR_BENCH)
.PHONY: bench-events
bench-events: $(O)/bin/hvd-operator ## processor time per event of the largest objects that users can make (10 min)
	@BIN=$(O)/bin tests/bench/operator_events.py --check $(EVENTS)
.PHONY: bench-ask
bench-ask: $(O)/bin/hvd-operator ## what asking 1,000 running jobs for their progress costs the operator (5 min)
	@BIN=$(O)/bin tests/bench/operator_ask.py --check $(ASK)
.PHONY: bench-page
bench-page: $(O)/bin/hvd-operator ## what 200 viewers of the status page cost the operator and its 1,000 jobs (8 min)
	@BIN=$(O)/bin tests/bench/operator_ask.py --viewers 200 --check $(ASK)
.PHONY: bench-slurm
bench-slurm: $(addprefix $(O)/bin/bench_,start hello_mpi) $(O)/lib/spank_hvd.so ## start of a Slurm step against PMIx (root; 1 min)
	@tests/bench/slurm.py $(O)/bin $(O)/lib/spank_hvd.so --check
.PHONY: bench-elastic
bench-elastic: $(O)/bin/horovodrun $(O)/bin/hvd-agent python ## how long a killed rank stops a job, against Horovod and torchrun (12 min; ELASTIC=--check)
	@tests/setup/deb.sh build torch
	@horovod=$$(tests/setup/horovod.sh) && tests/bench/elastic.py $(O) --horovod "$$horovod" $(ELASTIC)
.PHONY: bench-neighbours
bench-neighbours: $(O)/bin/horovodrun $(O)/bin/hvd-agent python ## what commits with copies on another host and snapshots of 50 MB cost a training (2 min; NEIGHBOURS="MB ROUNDS")
	@tests/setup/deb.sh build torch
	@PYTHONPATH=$(abspath $(O)/python) OMP_NUM_THREADS=1 HVD_TRANSPORT=tcp $(O)/bin/horovodrun -np 2 --min-np 2 -H localhost:1,127.0.0.2:1 \
	    /usr/bin/python3 tests/bench/neighbours_torch.py $(NEIGHBOURS)
.PHONY: bench-codec
bench-codec: $(O)/bin/bench_codec ## speed of compression, one thread
	@$(O)/bin/bench_codec
# Autotune against a grid, between two network namespaces; TUNE=--short: a minute. Needs root.
.PHONY: bench-tune
bench-tune: $(O)/bin/bench_step $(O)/bin/bench_path ## autotune against a grid of settings on two shaped lines (6 min)
	@tests/bench/tune.py $(O)/bin $(TUNE)
