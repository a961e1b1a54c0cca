.PHONY: test-distro
test-distro: deb rpm ## the packages: lint, install, upgrade while a step runs, remove (root)
	@tests/distro/run.sh
.PHONY: test-easybuild
test-easybuild: rpm ## the recipe for EasyBuild: build, install, load the module (root; some minutes)
	@tests/distro/easybuild.sh
