$(eval $(call archive,cpu,$(wildcard runtime/backend/cpu/*.c),-O3))
$(eval $(call unit,cpu,cpu core rendezvous contract base,-lm))
