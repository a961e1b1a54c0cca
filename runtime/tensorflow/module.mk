# libhvd_tf.so: TensorFlow's operations; TensorFlow itself is only a stub for the linker.
TF_SONAME := libtensorflow_framework.so.2
TF_OBJ    := $(patsubst %,$(O)/runtime/tensorflow/%.o,hvd_tf kernel name numbers job part shapes self_test done)

$(O)/stub/$(TF_SONAME): $(O)/runtime/tensorflow/tf_stub.o
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) -shared -Wl,-soname,$(TF_SONAME) -o $@ $<

$(O)/lib/libhvd_tf.so: $(TF_OBJ) $(O)/stub/$(TF_SONAME) $(HVD_LIB) runtime/tensorflow/libhvd_tf.map
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) -shared $(LDFLAGS) -Wl,-soname,libhvd_tf.so -Wl,-rpath,'$$ORIGIN' -Wl,--disable-new-dtags \
	    -Wl,--version-script=runtime/tensorflow/libhvd_tf.map -o $@ $(TF_OBJ) \
	    $(O)/stub/$(TF_SONAME) $(HVD_LIB) -ldl
-include $(TF_OBJ:.o=.d)
ALL_BINS += $(O)/lib/libhvd_tf.so

# Tests are TensorFlow and the runtime themselves (tests/unit/tf_fake.h).
$(eval $(call archive,tfop,$(TF_OBJ:$(O)/%.o=%.c)))
$(eval $(call unit,tfop,tfop,-ldl))
