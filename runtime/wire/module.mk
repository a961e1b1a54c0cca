$(eval $(call archive,wire,$(wildcard runtime/wire/*.c)))
$(eval $(call unit,wire,wire contract base,))
