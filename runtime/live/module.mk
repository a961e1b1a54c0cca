# The live report: what the agents, their readers and the operator share.
$(eval $(call archive,live,$(wildcard runtime/live/*.c)))
$(eval $(call unit,live,live wire contract base))
