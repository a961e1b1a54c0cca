# Disturbed elastic jobs: chaos.py says how it can be started otherwise.
CHAOS ?= --seconds 60 --every 3
.PHONY: elastic-chaos
elastic-chaos: $(O)/bin/horovodrun $(O)/bin/hvd-agent python ## kill ranks of an elastic job at random; same model, each sample once (2 min; CHAOS="--seconds 600")
	@tests/setup/deb.sh build torch
	@PYTHONPATH=$(abspath $(O)/python) tests/elastic/chaos.py $(CHAOS) -- $(abspath $(O))/bin/horovodrun \
	    -np 4 --min-np 1 --max-np 4 -H localhost:4 /usr/bin/python3
