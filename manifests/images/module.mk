.PHONY: images
images: $(O)/bin/hvd-operator stage ## OCI archives of the operator and the runtime, in $(BUILD)/images/
	@manifests/images/images.sh $(O)/bin/hvd-operator $(BUILD)/stage $(BUILD)/images
