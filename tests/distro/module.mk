.PHONY: test-distro
test-distro: deb rpm ## the packages: lint, install, upgrade while a step runs, remove (root)
	@tests/distro/run.sh
