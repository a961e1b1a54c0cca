$(eval $(call archive,rendezvous,$(wildcard runtime/rendezvous/*.c)))
$(eval $(call unit,rendezvous,rendezvous wire contract base,))
