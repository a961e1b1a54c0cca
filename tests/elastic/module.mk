# Disturbed elastic jobs: chaos.py says what the platforms are, and has more options.
ON       ?= local
SECONDS_ ?= 60
CHAOS    ?=
CHAOS_local := -- $(abspath $(O))/bin/horovodrun -np 4 --min-np 1 --max-np 4 -H localhost:4 /usr/bin/python3
CHAOS_NEEDS_local := $(O)/bin/horovodrun $(O)/bin/hvd-agent python
CHAOS_NEEDS_hosts := stage
CHAOS_NEEDS_slurm := stage
CHAOS_DEB_hosts := ssh
CHAOS_DEB_slurm := slurm
.PHONY: elastic-chaos
elastic-chaos: $(CHAOS_NEEDS_$(ON)) ## disturb an elastic job at random; same model, each sample once (2 min; ON=hosts, slurm, kube; SECONDS_=600; CHAOS="--seed 1")
	@tests/setup/deb.sh build torch $(CHAOS_DEB_$(ON))
	@PYTHONPATH=$(abspath $(O)/python) tests/elastic/chaos.py --on $(ON) --seconds $(SECONDS_) $(CHAOS) $(CHAOS_$(ON))
