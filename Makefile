# SPDX-License-Identifier: Apache-2.0
# libsircl. `make`, `make demo`, `make check`; `make help` lists the targets.
# Variables: BUILD (output folder), CC, OPT, CFLAGS, LDFLAGS, SAN (sanitizer flags), V=1 (show commands);
# of install and uninstall: DESTDIR, PREFIX, and BINDIR, LIBDIR, INCLUDEDIR, PKGCONFIGDIR, MANDIR under it.
BUILD   ?= build
OPT     ?= -O2 -g
SAN     ?=
CFLAGS  ?=
LDFLAGS ?=
Q       := $(if $(V),,@)
say      = $(if $(V),,@printf '  %-7s %s\n' $(1) $(2);)

PREFIX       ?= /usr/local
BINDIR       ?= $(PREFIX)/bin
LIBDIR       ?= $(PREFIX)/lib
INCLUDEDIR   ?= $(PREFIX)/include
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
MANDIR       ?= $(PREFIX)/share/man

CSTD    := -std=gnu11
WARN    := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
ALL_CPPFLAGS = -Iinclude -Ilibsircl -D_GNU_SOURCE $(if $(VERBS_H),-DSIRCL_VERBS) $(if $(HWLOC),-DHAVE_HWLOC) $(CPPFLAGS)
ALL_CFLAGS = $(CSTD) $(OPT) $(WARN) -fvisibility=hidden -fPIC -pthread -MMD -MP $(SAN) $(CFLAGS)
ALL_LDFLAGS = -pthread $(SAN) $(LDFLAGS)

have     = $(shell pkg-config --exists $(1) 2>/dev/null && echo yes)
SODIUM  := $(call have,libsodium)
CHECK   := $(call have,check)
JANSSON := $(call have,jansson)
HWLOC   := $(call have,hwloc)
VERBS_H := $(call have,libibverbs librdmacm)

# without the headers of rdma-core: no RDMA lanes, but a sentence that says so
LIB_SRC   := $(filter-out $(if $(VERBS_H),%/verbs_none.c,$(filter-out %/verbs_none.c,$(wildcard libsircl/lane/verbs*.c))),$(sort $(wildcard libsircl/*/*.c)))
LIB_OBJ   := $(LIB_SRC:%.c=$(BUILD)/%.o)
VERBS_UNIT := $(wildcard tests/unit/test_lane_verbs*.c tests/unit/test_fakeverbs*.c) # need rdma-core's headers
TOOL_SRC  := $(sort $(wildcard tools/*.c))
BENCH_SRC := $(sort $(wildcard bench/bench_*.c) $(wildcard bench/sircl-bench.c))
UNIT_SRC  := $(filter-out $(if $(VERBS_H),,$(VERBS_UNIT)),$(sort $(wildcard tests/unit/test_*.c)))
FAKE_SRC  := $(if $(VERBS_H),$(filter-out %/fakectl.c,$(sort $(wildcard tests/fakeverbs/*.c))))
SIM_SRC   := $(sort $(wildcard tests/sim/*.c))
obj        = $(patsubst %.c,$(BUILD)/%.o,$(1))
UNIT_BIN  := $(if $(CHECK),$(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(UNIT_SRC)))
FUNC_BIN  := $(patsubst tests/functional/%.c,$(BUILD)/tests/%,$(sort $(wildcard tests/functional/*.c)))
SIM_BIN   := $(if $(SIM_SRC),$(BUILD)/tests/sim)
FAKE      := $(if $(VERBS_H),$(addprefix $(BUILD)/tests/fakeverbs/,libibverbs.so.1 librdmacm.so.1 fakectl))
PROGRAMS  := $(BUILD)/libsircl.a $(BUILD)/libsircl.so $(BUILD)/sircl $(if $(and $(JANSSON),$(wildcard bench/sircl-bench.c)),$(BUILD)/sircl-bench)

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all programs tests table demo demo-run check check-run check-unit check-functional check-netns check-vm check-fresh check-long check-aarch64 check-valgrind lint \
	check-plants format clean help setup-build setup-check install uninstall

all: table
programs: $(PROGRAMS)
tests: $(UNIT_BIN) $(FUNC_BIN) $(SIM_BIN) $(FAKE) $(BUILD)/ring_cost

# What is in, what is missing, what brings it.
row = @printf '  %-28s %-9s %s\n' $(1) $(if $(2),yes,missing) $(if $(2),'',$(3));
table: programs
	@echo 'libsircl in $(BUILD):'
	$(call row,'library (static and shared)',yes,)
	$(call row,'sircl (run and params ...)',yes,)
	$(call row,'sircl-bench',$(JANSSON),'apt-get install libjansson-dev')
	$(call row,'unit tests',$(CHECK),'apt-get install check')
	$(call row,'placement by hwloc',$(HWLOC),'apt-get install libhwloc-dev')
	$(call row,'RDMA lanes',$(VERBS_H),'apt-get install libibverbs-dev librdmacm-dev')
	@printf '  %-28s %-9s %s\n' 'NCCL plugin CUDA' 'not yet' 'see README.md'

ifeq ($(SODIUM),)
$(LIB_OBJ): need-sodium
.PHONY: need-sodium
need-sodium:
	@echo 'libsodium headers are missing: apt-get install pkg-config libsodium-dev, or run make demo as root, which installs them' >&2; exit 2
endif

# Headers that were installed since the last build change what is compiled, so all is compiled anew.
.PHONY: look
look:
$(BUILD)/features: look
	@mkdir -p $(@D); echo 'verbs=$(VERBS_H) hwloc=$(HWLOC)' | cmp -s - $@ || echo 'verbs=$(VERBS_H) hwloc=$(HWLOC)' >$@

# ---- library ----
$(BUILD)/libsircl.a: $(LIB_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@; $(AR) rcs $@ $^
# Only what the map names is visible; nodelete: threads and thread-local errors outlive a dlclose.
$(BUILD)/libsircl.so.0: $(LIB_OBJ) libsircl/libsircl.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -Wl,-soname,libsircl.so.0 -Wl,--version-script,libsircl/libsircl.map \
		-Wl,-z,nodelete,-z,relro,-z,now,--as-needed $(if $(SAN),,-Wl,-z,defs) -o $@ $(LIB_OBJ) -ldl -lm
$(BUILD)/libsircl.so: $(BUILD)/libsircl.so.0
	$(Q)ln -sf libsircl.so.0 $@
# All paths of a sum must give equal bits: no contraction. No flag of an exception is read, so arithmetic need not be
# kept behind branches, which would keep it from being vectorised.
$(BUILD)/libsircl/reduce/%.o: ALL_CFLAGS += -O3 -ffp-contract=off -fno-trapping-math
$(BUILD)/%.o: %.c $(BUILD)/features
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -c -o $@ $<

# ---- tools, bench ----
$(BUILD)/sircl: $(call obj,$(TOOL_SRC)) $(BUILD)/libsircl.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -ldl -lm
# On the public header and the shared library only, as a user's program would be.
$(BUILD)/sircl-bench: $(call obj,$(BENCH_SRC)) $(BUILD)/libsircl.so
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -L$(BUILD) -lsircl -Wl,-rpath,'$$ORIGIN' $$(pkg-config --libs jansson) -lm
# On the inner interfaces: one lane alone; four ranks in one thread (bench/instructions.sh); the arithmetic.
$(BUILD)/lane_pingpong $(BUILD)/ring_cost $(BUILD)/reduce_rate: $(BUILD)/%: $(BUILD)/bench/%.o $(BUILD)/libsircl.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -ldl -lm

# ---- tests ----
$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(BUILD)/libsircl.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $$(pkg-config --libs check) -ldl -lm
$(BUILD)/tests/unit/test_bench_%: $(BUILD)/tests/unit/test_bench_%.o $(call obj,$(filter-out bench/bench_json.c bench/sircl-bench.c,$(BENCH_SRC))) $(BUILD)/libsircl.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $$(pkg-config --libs check) -ldl -lm
# A stand-in for rdma-core: its functions are visible, so that programs find them, or tests are linked to them.
$(BUILD)/tests/fakeverbs/%.o: ALL_CFLAGS += -fvisibility=default
$(VERBS_UNIT:%.c=$(BUILD)/%) $(BUILD)/tests/unit/test_lane_conformance: $(call obj,$(FAKE_SRC))
$(BUILD)/tests/fakeverbs/libibverbs.so.1: $(call obj,$(FAKE_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -Wl,-soname,libibverbs.so.1 -o $@ $^
$(BUILD)/tests/fakeverbs/librdmacm.so.1: $(BUILD)/tests/fakeverbs/libibverbs.so.1
	$(Q)ln -sf libibverbs.so.1 $@
$(BUILD)/tests/fakeverbs/fakectl: $(BUILD)/tests/fakeverbs/fakectl.o $(call obj,$(FAKE_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^
$(BUILD)/tests/%: $(BUILD)/tests/functional/%.o $(BUILD)/libsircl.so
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< -L$(BUILD) -lsircl -Wl,-rpath,'$$ORIGIN/..' -lm
# The simulator suite. Its objects lie beside, since tests/sim is the program's own name. sim-plant is the same with
# rules that can be broken on purpose, and the whole library built for it.
$(BUILD)/sim-obj/%.o: tests/sim/%.c $(BUILD)/features
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -c -o $@ $<
$(BUILD)/tests/sim: $(SIM_SRC:tests/sim/%.c=$(BUILD)/sim-obj/%.o) $(BUILD)/libsircl.a
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -ldl -lm
$(BUILD)/plant/libsircl/reduce/%.o: ALL_CFLAGS += -O3 -ffp-contract=off -fno-trapping-math
$(BUILD)/plant/%.o: %.c $(BUILD)/features
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CPPFLAGS) -DSIRCL_PLANT $(ALL_CFLAGS) -c -o $@ $<
$(BUILD)/tests/sim-plant: $(patsubst %.c,$(BUILD)/plant/%.o,$(LIB_SRC) $(SIM_SRC))
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -ldl -lm

# Each broken rule must be caught; see tests/sim/plants.sh.
check-plants: $(BUILD)/tests/sim-plant
	@tests/sim/plants.sh $(BUILD)

setup-build:
	@scripts/setup.sh build
setup-check:
	@scripts/setup.sh build check

# A second make reads what the first has installed.
demo: setup-build
	@$(MAKE) --no-print-directory programs
	@$(MAKE) --no-print-directory demo-run
demo-run:
	@echo '$$ $(BUILD)/sircl-bench all_reduce --ranks 4 -b 1K -e 16M -f 4 -d bfloat16'
	@$(BUILD)/sircl-bench all_reduce --ranks 4 -b 1K -e 16M -f 4 -d bfloat16
	@echo '$$ $(BUILD)/sircl-bench all_gather --ranks 4 -b 1K -e 16M -f 4 -d bfloat16'
	@$(BUILD)/sircl-bench all_gather --ranks 4 -b 1K -e 16M -f 4 -d bfloat16

check: setup-check
	@$(MAKE) --no-print-directory programs tests
	@$(MAKE) --no-print-directory check-run
check-run:
	@BUILD=$(BUILD) scripts/check.sh unit functional netns
check-unit: tests programs
	@BUILD=$(BUILD) scripts/check.sh unit
check-functional: tests programs
	@BUILD=$(BUILD) scripts/check.sh functional
check-netns: tests programs
	@BUILD=$(BUILD) scripts/check.sh netns
# without root setup.sh only says what is missing, and the part is skipped
check-vm: tests programs
	@scripts/setup.sh vm || true
	@BUILD=$(BUILD) scripts/check.sh vm
check-fresh:
	@scripts/check-fresh.sh
check-long: tests programs
	@BUILD=$(BUILD) scripts/check.sh long

# BUILD_AARCH64: the folder of the cross build
check-aarch64:
	@scripts/check-aarch64.sh
check-valgrind: tests programs
	@BUILD=$(BUILD) scripts/check-valgrind.sh

# ---- install ----
VERSION  := $(shell sed -n 's/^\#define SIRCL_VERSION_[MP][A-Z]* \([0-9]*\)$$/\1/p' include/sircl/sircl.h | paste -sd.)
MAN      := man1/sircl.1 $(if $(filter %/sircl-bench,$(PROGRAMS)),man1/sircl-bench.1) man3/sircl.3 man7/sircl.7
# Every function has a page, which is that of all.
MAN_LINK := $(sort $(shell awk -F'\050' 'NF > 1 && match($$1, /sircl_[a-z_]+$$/) { print "man3/" substr($$1, RSTART) ".3" }' include/sircl/sircl.h))
D        := $(DESTDIR)
# sircl-bench finds the library where it is installed, also in a tree that is moved.
install: programs
	$(call say,INSTALL,$(D)$(PREFIX))
	$(Q)install -d $(D)$(BINDIR) $(D)$(LIBDIR) $(D)$(INCLUDEDIR)/sircl $(D)$(PKGCONFIGDIR) $(sort $(dir $(MAN:%=$(D)$(MANDIR)/%)))
	$(Q)install -m 755 $(BUILD)/sircl $(D)$(BINDIR)/sircl
ifneq ($(filter %/sircl-bench,$(PROGRAMS)),)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $(BUILD)/sircl-bench.install $(call obj,$(BENCH_SRC)) -L$(BUILD) -lsircl \
		-Wl,-rpath,'$$ORIGIN/$(shell realpath -m --relative-to='$(BINDIR)' '$(LIBDIR)')' $$(pkg-config --libs jansson) -lm
	$(Q)install -m 755 $(BUILD)/sircl-bench.install $(D)$(BINDIR)/sircl-bench
endif
	$(Q)install -m 755 $(BUILD)/libsircl.so.0 $(D)$(LIBDIR)/libsircl.so.$(VERSION)
	$(Q)ln -sf libsircl.so.$(VERSION) $(D)$(LIBDIR)/libsircl.so.0
	$(Q)ln -sf libsircl.so.0 $(D)$(LIBDIR)/libsircl.so
	$(Q)install -m 644 $(BUILD)/libsircl.a $(D)$(LIBDIR)/libsircl.a
	$(Q)install -m 644 include/sircl/sircl.h $(D)$(INCLUDEDIR)/sircl/sircl.h
	$(Q)printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$(INCLUDEDIR)' '' 'Name: libsircl' \
		'Description: Collectives on a switchless ring of machines' 'Version: $(VERSION)' \
		'Libs: -L$${libdir} -lsircl' 'Libs.private: -pthread -ldl -lm' 'Cflags: -I$${includedir}' >$(D)$(PKGCONFIGDIR)/libsircl.pc
	$(Q)for m in $(MAN); do install -m 644 man/$${m#*/} $(D)$(MANDIR)/$$m || exit 1; done
	$(Q)for m in $(MAN_LINK); do ln -sf sircl.3 $(D)$(MANDIR)/$$m || exit 1; done
	$(if $(D),,@echo 'Programs find libsircl.so.0 in $(LIBDIR) after ldconfig, if /etc/ld.so.conf names that folder; else by LD_LIBRARY_PATH.')
# Folders that others may use as well stay.
uninstall:
	$(call say,REMOVE,$(D)$(PREFIX))
	$(Q)rm -f $(D)$(BINDIR)/sircl $(D)$(BINDIR)/sircl-bench $(D)$(LIBDIR)/libsircl.so.$(VERSION) $(D)$(LIBDIR)/libsircl.so.0 \
		$(D)$(LIBDIR)/libsircl.so $(D)$(LIBDIR)/libsircl.a $(D)$(INCLUDEDIR)/sircl/sircl.h $(D)$(PKGCONFIGDIR)/libsircl.pc \
		$(MAN:%=$(D)$(MANDIR)/%) $(D)$(MANDIR)/man1/sircl-bench.1 $(MAN_LINK:%=$(D)$(MANDIR)/%)
	$(Q)rmdir $(D)$(INCLUDEDIR)/sircl 2>/dev/null || true

C_FILES := $(shell git ls-files '*.c' '*.h' 2>/dev/null)
SH_FILES := $(shell git ls-files '*.sh' .ci/run 2>/dev/null)
format:
	clang-format -i $(C_FILES)
lint:
	@scripts/lint.sh
clean:
	rm -rf $(BUILD)
help:
	@sed -n 's/^## //p' Makefile
## make                  library, tools, bench; ends with a table of what is in
## make demo             installs what is missing (as root), builds, runs an all-reduce and an all-gather of four processes
## make check            check-unit + check-functional + check-netns
## make check-unit       unit tests and the simulator, under 60 s
## make check-functional real processes on this machine
## make check-netns      eight tcp lanes between network namespaces without a diagonal (root)
## make check-vm         four virtual machines with kernel RDMA in a ring: soft-RoCE, no root, no KVM (6 minutes)
## make check-fresh      proves the set-up in a fresh Debian (root)
## make check-long       10,000 simulator seeds, planted faults, speed gate
## make check-aarch64    cross build; unit tests and simulator under qemu (about 4 minutes)
## make check-valgrind   unit tests and simulator under valgrind
## make install          under PREFIX (/usr/local), in DESTDIR if given: programs, libraries, header, libsircl.pc, man pages
## make uninstall        removes what install has put there, with the same variables
## make lint, format     clang-format, clang-tidy, shellcheck, layering
-include $(shell find $(BUILD) -name '*.d' -type f 2>/dev/null)
