.PHONY: conformance conformance-examples
conformance: all ## Horovod's own tests: TESTS=dir [NP=2] [LAUNCHER=mpirun|horovodrun] [PY=debian|torch|tf|tf215|path] [HOROVOD=original]
	@[ -n "$(TESTS)" ] || { echo "make conformance: say where the tests are, TESTS=horovod/test (tests/conformance/README.md)"; exit 2; }
	@O=$(O) tests/conformance/run.py $(TESTS) --np $(or $(NP),2) --launcher $(or $(LAUNCHER),mpirun) \
	    --python $(or $(PY),debian) $(if $(KERAS:3=),--keras2) $(if $(HOROVOD),--horovod $(HOROVOD)) $(if $(LIMIT),--limit $(LIMIT))

conformance-examples: all ## Horovod's own examples: EXAMPLES=dir [NAMES="keras/ tensorflow/"] [PY=tf215|tf|torch|path] [NP=2]
	@[ -n "$(EXAMPLES)" ] || { echo "make conformance-examples: say where the examples are, EXAMPLES=horovod/examples (tests/conformance/README.md)"; exit 2; }
	@O=$(O) tests/conformance/examples.py $(EXAMPLES) $(NAMES) --np $(or $(NP),2) --python $(or $(PY),tf215) \
	    $(if $(KERAS:3=),--keras2) $(if $(LIMIT),--limit $(LIMIT))
