$(eval $(call archive,base,$(wildcard runtime/base/*.c)))
$(eval $(call unit,base,base))
