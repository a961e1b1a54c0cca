.PHONY: conformance
conformance: all ## Horovod's own tests: TESTS=dir [NP=2] [LAUNCHER=mpirun|horovodrun] [PY=debian|torch|tf|tf215|path] [HOROVOD=original]
	@[ -n "$(TESTS)" ] || { echo "make conformance: say where the tests are, TESTS=horovod/test (tests/conformance/README.md)"; exit 2; }
	@O=$(O) tests/conformance/run.py $(TESTS) --np $(or $(NP),2) --launcher $(or $(LAUNCHER),mpirun) \
	    --python $(or $(PY),debian) $(if $(KERAS:3=),--keras2) $(if $(HOROVOD),--horovod $(HOROVOD)) $(if $(LIMIT),--limit $(LIMIT))
