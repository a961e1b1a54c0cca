$(eval $(call archive,contract,$(wildcard runtime/contract/*.c)))
$(eval $(call unit,contract,contract base))
