# SPDX-License-Identifier: Apache-2.0
# libsircl. `make`, `make demo`, `make check`; `make help` lists the targets.
BUILD   ?= build
CC      ?= gcc
SAN     ?=
OPT     ?= -O2 -g
CSTD    := -std=gnu11
WARN    := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
CPPFLAGS += -Iinclude -Ilibsircl -D_GNU_SOURCE
CFLAGS  ?=
ALL_CFLAGS = $(CSTD) $(OPT) $(WARN) -fvisibility=hidden -fPIC -pthread -MMD -MP $(SAN) $(CFLAGS)
ALL_LDFLAGS = -pthread $(SAN) $(LDFLAGS)

LIB_SRC  := $(sort $(wildcard libsircl/*/*.c))
LIB_OBJ  := $(LIB_SRC:%.c=$(BUILD)/%.o)
TOOL_SRC := $(sort $(wildcard tools/*.c))
TOOL_OBJ := $(TOOL_SRC:%.c=$(BUILD)/%.o)
UNIT_SRC := $(sort $(wildcard tests/unit/test_*.c))
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(BUILD)/tests/unit/%)

.DELETE_ON_ERROR:
.PHONY: all check-unit clean
# libsircl.so joins `all` as soon as every room is there: it links only when complete.
all: $(BUILD)/libsircl.a $(BUILD)/sircl
$(BUILD)/libsircl.a: $(LIB_OBJ)
	@rm -f $@; $(AR) rcs $@ $^
# Only what the map names is visible; nodelete: threads and thread-local errors outlive a dlclose.
$(BUILD)/libsircl.so.0: $(LIB_OBJ) libsircl/libsircl.map
	$(CC) -shared $(ALL_LDFLAGS) -Wl,-soname,libsircl.so.0 -Wl,--version-script,libsircl/libsircl.map \
		-Wl,-z,nodelete,-z,relro,-z,now,--as-needed $(if $(SAN),,-Wl,-z,defs) -o $@ $(LIB_OBJ) -ldl -lm
$(BUILD)/libsircl.so: $(BUILD)/libsircl.so.0
	@ln -sf libsircl.so.0 $@
$(BUILD)/sircl: $(TOOL_OBJ) $(BUILD)/libsircl.a
	$(CC) $(ALL_LDFLAGS) -o $@ $^ -ldl -lm
$(BUILD)/libsircl/reduce/%.o: ALL_CFLAGS += -O3 -ffp-contract=off
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -c -o $@ $<
$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(BUILD)/libsircl.a
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $$(pkg-config --libs check) -ldl -lm
check-unit: $(UNIT_BIN)
	@for t in $(UNIT_BIN); do echo "== $$t"; $$t || exit 1; done
clean:
	rm -rf $(BUILD)
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
