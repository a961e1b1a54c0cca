$(eval $(call archive,core,$(wildcard runtime/core/*.c)))
$(eval $(call unit,core,core base))
