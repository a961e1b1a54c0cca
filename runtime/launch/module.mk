# The two launchers, hvd-agent and horovodrun (= perseusrun), from one engine.
LAUNCH_SRC := $(filter-out runtime/launch/agent_main.c runtime/launch/horovodrun_main.c,\
                $(wildcard runtime/launch/*.c runtime/launch/core/*.c))
LAUNCH_LIBS := launch rendezvous contract base
$(eval $(call archive,launch,$(LAUNCH_SRC)))
$(eval $(call program,hvd-agent,runtime/launch/agent_main.c,$(LAUNCH_LIBS),))
$(eval $(call program,horovodrun,runtime/launch/horovodrun_main.c,$(LAUNCH_LIBS),))
$(eval $(call unit,launch,$(LAUNCH_LIBS)))
ALL_BINS += $(O)/bin/hvd-agent $(O)/bin/horovodrun
