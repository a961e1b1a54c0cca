# The Python packages: $(O)/python/ is a complete tree for PYTHONPATH; `make stage-python` puts
# the portable one into $(BUILD)/stage/python, `make wheel` packs it.
HVD_LIB   ?= $(O)/lib/libhvd.so
PY_SRC    := $(sort $(shell find runtime/python/_hvd runtime/python/horovod runtime/python/perseus \
             -name '*.py' -o -name '*.pyi' -o -name py.typed))
# horovod.torch.x is perseus.torch.horovod.x too, at run time by _hvd/perseus.py, for type checkers by a stub.
perseus_of = $(foreach f,torch tensorflow keras,$(patsubst horovod/$(f)/%,perseus/$(f)/horovod/%,$(filter horovod/$(f)/%.pyi,$(1))))
PY_FILES  := $(patsubst runtime/python/%,%,$(PY_SRC))
PY_FILES  += $(call perseus_of,$(PY_FILES)) _hvd/_version.py
# Written by mkexample.py from runtime/examples.
PY_EXAMPLES := $(patsubst %,perseus/examples/%.py,keras_mnist pytorch_mnist tensorflow2_mnist tensorflow_keras_mnist \
             tensorflow_mnist tensorflow_mnist_estimator)
PY_FILES  += $(PY_EXAMPLES)
PY_OUT    := $(addprefix $(O)/python/,$(PY_FILES))
PY_EXT    := $(O)/python/_hvd/_native.abi3.so
PY_LIBS   := $(patsubst %,$(O)/python/_hvd/%.so,libhvd libhvd_tf libhvd_cuda)
PY_TREE   := $(PY_OUT) $(PY_EXT) $(PY_LIBS)
# Headers of any CPython 3.8 or later will do; -idirafter: Debian's pyconfig.h lies under /usr/include,
# whose libc headers must not come before the portable compiler's.
PY_INCLUDE ?= $(firstword $(wildcard /usr/include/python3.[0-9]*))

PY_EXT_OBJ := $(patsubst %,$(O)/runtime/python/ext/%.o,native module life start sets progress submit ending device capsule replica elastic)
$(PY_EXT_OBJ): XFLAGS := -DPy_LIMITED_API=0x03080000 -isystem $(PY_INCLUDE) -idirafter /usr/include
$(PY_EXT): $(PY_EXT_OBJ) $(O)/runtime/core/digest.o $(HVD_LIB) runtime/python/ext/native.map
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) -shared $(LDFLAGS) -Wl,-rpath,'$$ORIGIN' -Wl,--disable-new-dtags -Wl,--version-script=runtime/python/ext/native.map \
	    -o $@ $(PY_EXT_OBJ) $(O)/runtime/core/digest.o $(HVD_LIB) -pthread
-include $(PY_EXT_OBJ:.o=.d)

$(O)/python/_hvd/libhvd.so: $(HVD_LIB)
	@mkdir -p $(@D)
	@cp $< $@
$(O)/python/_hvd/libhvd_tf.so $(O)/python/_hvd/libhvd_cuda.so: $(O)/python/_hvd/%: $(O)/lib/%
	@mkdir -p $(@D)
	@cp $< $@
$(O)/python/%.py: runtime/python/%.py
	@mkdir -p $(@D)
	@cp $< $@
$(O)/python/%.pyi: runtime/python/%.pyi
	@mkdir -p $(@D)
	@cp $< $@
define perseus_stub
$(O)/python/perseus/$(1)/horovod/%.pyi: runtime/python/horovod/$(1)/%.pyi runtime/python/module.mk
	@mkdir -p $$(@D)
	@printf '%s\n' '# SPDX-License-Identifier: Apache-2.0' \
	    'from horovod.$(1)$$(subst .__init__,,$$(subst /,.,.$$*)) import *' > $$@
endef
$(foreach f,torch tensorflow keras,$(eval $(call perseus_stub,$(f))))
$(addprefix $(O)/python/,$(PY_EXAMPLES)): runtime/python/mkexample.py $(wildcard runtime/examples/*.py)
	@mkdir -p $(@D)
	@/usr/bin/python3 runtime/python/mkexample.py runtime/examples $@
$(O)/python/%/py.typed: runtime/python/%/py.typed
	@mkdir -p $(@D)
	@cp $< $@
$(O)/python/_hvd/_version.py: Makefile runtime/python/module.mk
	@mkdir -p $(@D)
	@printf '%s\n' '# SPDX-License-Identifier: Apache-2.0' '"""Written by the build."""' \
	    "RINGMASTER_VERSION = '$(VERSION)'" "__version__ = '0.28.1+ringmaster.$(VERSION)'" > $@
ALL_BINS += $(PY_TREE)

PY_STAGE := $(BUILD)/stage/python
WHEEL    := $(BUILD)/ringmaster_horovod-$(VERSION)-cp38-abi3-manylinux2014_x86_64.whl

.PHONY: python stage-python wheel
python: $(PY_TREE) ## the Python packages of variant V in $(BUILD)/$(V)/python
PORTABLE_V := $(if $(NATIVE),plain,portable)
stage-python: stage-tools ## the portable Python packages in $(BUILD)/stage/python
	@$(MAKE) --no-print-directory V=$(PORTABLE_V) python $(BUILD)/$(PORTABLE_V)/bin/hvd-gpu
	@/usr/bin/python3 runtime/python/stage.py $(BUILD)/$(PORTABLE_V)/python $(PY_STAGE) \
	    $(PY_FILES) _hvd/_native.abi3.so $(patsubst $(O)/python/%,%,$(PY_LIBS))
wheel: stage ## the wheel: Python packages and the launchers as scripts
	@/usr/bin/python3 runtime/python/mkwheel.py $(PY_STAGE) $(BUILD)/stage/bin $(VERSION) $(WHEEL)
