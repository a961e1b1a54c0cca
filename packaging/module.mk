# Packages of this machine's Debian and Slurm release (packaging/README.md), in $(BUILD)/deb and $(BUILD)/rpm.
.PHONY: deb rpm
deb: $(BUILD)/kernels/kernels.bin ## Debian packages of runtime, tools and the plugin for this machine's Slurm, in build/deb
	@tests/setup/deb.sh build slurm packages
	@CACHE=$(CACHE) packaging/build.sh deb $(BUILD)/deb $(VERSION) $(KERNEL_BIN) >$(BUILD)/deb.log 2>&1 \
	    || { tail -40 $(BUILD)/deb.log; exit 1; }
	@ls $(BUILD)/deb/*.deb
rpm: $(BUILD)/kernels/kernels.bin ## the same as RPM packages, in build/rpm
	@tests/setup/deb.sh build slurm packages
	@CACHE=$(CACHE) packaging/build.sh rpm $(BUILD)/rpm $(VERSION) $(KERNEL_BIN) >$(BUILD)/rpm.log 2>&1 \
	    || { tail -40 $(BUILD)/rpm.log; exit 1; }
	@ls $(BUILD)/rpm/*.rpm
