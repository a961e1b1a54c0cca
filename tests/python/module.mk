# The library of test_compress.py: the codecs behind functions for ctypes. Not shipped.
$(O)/lib/codec_shim.so: $(O)/tests/python/codec_shim.o $(O)/libcore.a $(O)/libbase.a
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) -shared $(LDFLAGS) -o $@ $^
-include $(O)/tests/python/codec_shim.d
