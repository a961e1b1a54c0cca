.PHONY: images
# NCCL=1: the runtime's image with an NCCL in it too, of a wheel of 350 MB.
images: $(O)/bin/hvd-operator stage ## OCI archives of the operator and the runtime, in $(BUILD)/images/
	@case "$(NCCL)" in "" | 0) ;; 1) nccl=$$(tests/setup/venv.sh nccl) || exit ;; *) echo "NCCL=$(NCCL): it is 0 or 1" >&2; exit 2 ;; esac; \
	    manifests/images/images.sh $(O)/bin/hvd-operator $(BUILD)/stage $(BUILD)/images $$nccl
