# SPDX-License-Identifier: MIT
# Each target installs what it needs (Debian packages as root, and a .venv) and can be repeated.
PYTHON ?= python3
PY := .venv/bin/python
SHELL := /bin/bash
export PATH := $(PATH):/usr/sbin:/sbin

PACKAGES := clang clang-format llvm bpftool gcc libc6-dev libbpf-dev libelf-dev zlib1g-dev pkg-config \
	python3-dev python3-venv fio sysstat fdisk util-linux bpftrace libfuse3-dev fuse3 e2fsprogs xfsprogs btrfs-progs
VM_PACKAGES := kmod zstd nvme-cli mdadm dmsetup python3-bpfcc \
	cryptsetup-bin drbd-utils f2fs-tools lvm2 sg3-utils thin-provisioning-tools dosfstools ntfs-3g bcache-tools
ARM64_PACKAGES := qemu-system-arm gcc-aarch64-linux-gnu libc6-dev-arm64-cross
LOAD_PACKAGES := sysbench
SHELL_PACKAGES := zsh fish
BENCH_PACKAGES := libbpf-tools bpfcc-tools

# Installs the packages of requirements/NAME.txt, which has a version and hashes for each (make lock).
# $(call pip_install,PYTHON,NAME...)
pip_install = $(1) -m pip install -q --disable-pip-version-check --require-hashes $(2:%=-r requirements/%.txt)

# Sources of the extension: it is rebuilt if any of them changes.
NATIVE := setup.py pyproject.toml bpf/Makefile $(wildcard bpf/*/* opwatch/_native/* opwatch/_native/*/* opwatch/ftl/*/*.[ch] \
	opwatch/drive/server/*.[ch] opwatch/drive/server/*/*.[ch] tools/broker/*.[ch])

help:
	@echo "make demo        a live view, a trim and a sweep of a simulated SSD (root)"
	@echo "make test        run the tests (those of the kernel need root)"
	@echo "make test-all    run also the cases that make test leaves out, and all guests (hours)"
	@echo "make build       build the extension, and a .venv with opwatch"
	@echo "make install     install opwatch [PREFIX=/usr/local]; make uninstall removes it"
	@echo "make wheel       build a wheel that needs no compiler or library, in build/dist [DEB_ARCH=arm64]"
	@echo "make release     build all files of a release in build/release; make reproducible builds twice and compares"
	@echo "make lock        update the locked versions in requirements/; make audit looks up known vulnerabilities"
	@echo "make deb         build Debian packages of this checkout, in build/deb [DEB_ARCH=arm64]"
	@echo "make test-packages  build, install, upgrade and purge them in roots of Debian 12 and 13 (root) [SUITES=trixie]"
	@echo "make lint bench  the checks of CI; every figure against its bound"
	@echo "make prose       measure the language of the code [SAMPLE=50]"
	@echo "make smoke       check that benchmarks and fuzzers run, with tiny sizes (root) [QUICK=1: not the long ones]"
	@echo "make bench-trim  the cost of following a trim, relative to fstrim"
	@echo "make bench-steady  judge 400 new series with a known mean [SERIES= SEED=]"
	@echo "make bench-why   search periods in 1,600 new series [SERIES= SEED=]; explain a day of 24 disks"
	@echo "make bench-predictions  predict changes of made-up systems, make them, compare [SYSTEMS= SEED=]"
	@echo "make bench-blame  share NAND bytes of made-up drives among owners, compare with separate runs [DRIVES= SEED=]"
	@echo "make bench-saturation  IOPS of null_blk in a guest under tracers [KERNEL=6.12]"
	@echo "make test-kernel run only the tests that need root"
	@echo "make test-kills  kill record, flight, sweep at any moment [KILLS=50] [SEED=14]"
	@echo "make test-vm     stock kernels in QEMU [KERNEL=6.12] [TEST=nvme] [TIER=ci]"
	@echo "make test-arm64  run a smoke test on arm64 in QEMU"
	@echo "make fuzz        fuzz the simulated drive: ten million operations"
	@echo "make fuzz-state  fuzz saved drives: a million damaged files"
	@echo "make fuzz-web    fuzz the exporter: a million requests [INPUTS=]"
	@echo "make fuzz-broker  fuzz the broker: a million requests [INPUTS=] [SEED=]"
	@echo "make fuzz-counters [INPUTS=10000000]; make fuzz-all [INPUTS=10000000]"
	@echo "make fuzz-recordings  read 100,000 hostile and 1,100 damaged recordings"
	@echo "make test-analysis  query a data set with DuckDB, Spark, ClickHouse (needs java)"
	@echo "make test-fleet  rules, dashboards, manifests and queries of simulated fleets [SEED=100]"
	@echo "make bench-fleet  figures of simulated fleets (needs java)"
	@echo "make bench-exporter  the exporter beside Debian's node_exporter (root)"
	@echo "make learn-counters ROWS=FILE [OUT=FILE]  learn units of uncatalogued drives"
	@echo "make pictures    make the pictures of the docs on a simulated drive (root)"
	@echo "make waf-runs    compare 3,600 runs with the true values, for docs/method-waf.md"
	@echo "make why-matrix  compare answers of opwatch why with known causes, for docs/method-why.md (root) [SEEDS= JOBS=]"
	@echo "make why-virtual  the same in virtual time, without root [SEEDS= FIRST= JOBS=]"
	@echo "make exactness   make the table of docs/exactness.md; make clean"

# Installs missing Debian packages as root; otherwise names them.
define install_packages
	@missing=$$(for p in $(1); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null \
		| grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ] && [ $$(id -u) -eq 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing; } >/dev/null \
		|| apt-get install -qq -y --no-install-recommends $$missing >/dev/null; \
	elif [ -n "$$missing" ]; then \
		echo "opwatch: not installed:" $$missing "(run make as root once, or install them)" >&2; \
	fi
endef

packages:
	$(call install_packages,$(PACKAGES))

.venv/tools: Makefile requirements/tools.txt | packages
	@$(PYTHON) -m venv .venv
	@$(call pip_install,$(PY),tools)
	@touch $@

.venv/built: $(NATIVE) .venv/tools
	@OPWATCH_BPF=require $(PY) -m pip install -q --disable-pip-version-check \
		--no-build-isolation --config-settings editable_mode=compat -e .
	@touch $@

# Compile the modules here, because users of a checkout may lack write access to it. Otherwise every start would
# compile some hundred modules, which takes longer than an audit of a small filesystem.
build: packages .venv/built
	@$(PY) -m compileall -q opwatch tools collectors
	@$(PY) -m opwatch.tools.manual docs/man/opwatch.1 build/man/man1

# Installs a wheel of this checkout in a separate virtual environment below PREFIX. sudo searches /usr/local/bin.
PREFIX ?= /usr/local
OWN := $(PREFIX)/lib/opwatch
UNITS := opwatch-broker.service opwatch-broker.socket opwatch-exporter.service opwatch-flight.service

COMPLETIONS := $(PREFIX)/share/bash-completion/completions/opwatch $(PREFIX)/share/zsh/site-functions/_opwatch \
	$(PREFIX)/share/fish/vendor_completions.d/opwatch.fish
find_shell = $(firstword $(foreach shell,bash zsh fish,$(if $(findstring /$(shell),$(1)),$(shell))))

.PHONY: install install-files uninstall
install: build
	@# Root runs these files later, so only their owner may write to them, regardless of the umask.
	@umask 022; $(MAKE) -s install-files

install-files:
	@# Leftovers of an earlier wheel would be packed again.
	@rm -rf build/wheel build/lib.*
	@OPWATCH_BPF=require $(PY) -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps \
		-w build/wheel .
	@$(PYTHON) -m venv --clear $(OWN)
	@$(OWN)/bin/python -m pip install -q --disable-pip-version-check --no-index --no-deps build/wheel/*.whl
	@$(call pip_install,$(OWN)/bin/python,tui) 2>/dev/null \
		|| echo "opwatch: installed without the dashboard: textual cannot be fetched" >&2
	@$(call pip_install,$(OWN)/bin/python,analysis) 2>/dev/null \
		|| echo "opwatch: installed without Parquet: duckdb cannot be fetched" >&2
	@mkdir -p $(PREFIX)/bin $(PREFIX)/sbin $(PREFIX)/share/man/man1 $(PREFIX)/share/man/man8
	@ln -sfn $(OWN)/bin/opwatch $(PREFIX)/bin/opwatch
	@install -m 644 $(OWN)/share/man/man1/*.1 $(PREFIX)/share/man/man1/
	@install -m 644 docs/man/opwatch-broker.8 $(PREFIX)/share/man/man8/opwatch-broker.8
	@install -m 755 $(OWN)/lib/python*/site-packages/opwatch/tools/broker/opwatch-broker $(PREFIX)/sbin/
	@mkdir -p $(PREFIX)/lib/systemd/system $(PREFIX)/lib/sysusers.d
	@for unit in $(UNITS); do \
		sed 's|/usr/local/|$(PREFIX)/|' tools/deploy/systemd/$$unit > $(PREFIX)/lib/systemd/system/$$unit; \
	done
	@install -m 644 tools/deploy/systemd/opwatch.sysusers.conf $(PREFIX)/lib/sysusers.d/opwatch.conf
	@mkdir -p $(dir $(COMPLETIONS))
	@$(foreach file,$(COMPLETIONS),$(OWN)/bin/opwatch completion $(call find_shell,$(file)) > $(file) &&) true
	@$(PREFIX)/bin/opwatch --version

uninstall:
	rm -rf $(OWN)
	rm -f $(COMPLETIONS)
	rm -f $(PREFIX)/bin/opwatch $(PREFIX)/share/man/man1/opwatch{,-*}.1 $(PREFIX)/lib/sysusers.d/opwatch.conf \
		$(PREFIX)/sbin/opwatch-broker $(PREFIX)/share/man/man8/opwatch-broker.8 \
		$(UNITS:%=$(PREFIX)/lib/systemd/system/%)

# Updates requirements/*.txt: the newest versions that requirements/*.in and the extras of setup.py allow, with the
# hashes of their files.
LOCK := .venv/bin/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
.PHONY: lock audit
lock: build
	@$(call pip_install,$(PY),release)
	@$(foreach list,$(wildcard requirements/*.in),$(LOCK) $(list) -o $(list:.in=.txt) &&) true
	@$(foreach extra,tui analysis,$(LOCK) setup.py --extra $(extra) -o requirements/$(extra).txt &&) true

# Looks up the locked versions in the databases of known vulnerabilities.
audit: build
	@$(call pip_install,$(PY),release)
	$(PY) -m pip_audit --disable-pip --require-hashes $(patsubst %,-r %,$(wildcard requirements/*.txt))

# A wheel in build/dist for every Python from 3.11 on. auditwheel puts libbpf, libelf and libfuse into it, and
# names the oldest glibc that has the symbols they need. The BPF objects are compiled here. DEB_ARCH=arm64 builds for
# another architecture, with Debian's cross compiler and the libraries of that architecture.
ifneq ($(DEB_ARCH),)
TRIPLET := $(shell dpkg-architecture -a$(DEB_ARCH) -qDEB_HOST_MULTIARCH 2>/dev/null)
WHEEL_CROSS := CC=$(TRIPLET)-gcc PKG_CONFIG=$(TRIPLET)-pkg-config \
	_PYTHON_HOST_PLATFORM=linux-$(firstword $(subst -, ,$(TRIPLET))) \
	_PYTHON_SYSCONFIGDATA_NAME=_sysconfigdata__$(TRIPLET)
WHEEL_LIBRARIES := --ldpaths /lib/$(TRIPLET):/usr/lib/$(TRIPLET)
endif

.PHONY: wheel
wheel: build
	@$(call pip_install,$(PY),release)
	@rm -rf build/portable build/lib.* build/dist/*.whl
	@umask 022; $(WHEEL_CROSS) OPWATCH_BPF=require OPWATCH_PORTABLE=1 $(PY) -m pip wheel -q \
		--disable-pip-version-check --no-build-isolation --no-deps -w build/portable .
	@# strip of that architecture.
	@PATH="$(TRIPLET:%=/usr/%/bin:)$(CURDIR)/.venv/bin:$$PATH" $(PY) -m auditwheel repair --strip \
		$(WHEEL_LIBRARIES) -w build/dist build/portable/*.whl > build/portable/repair.txt 2>&1 \
		|| { cat build/portable/repair.txt; exit 1; }
	@$(PY) -m auditwheel show build/dist/*.whl

# CycloneDX bills of materials, in build/dist: of the wheel with its libraries, and of the extras.
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' opwatch/__init__.py)
.PHONY: sbom
sbom: wheel
	@$(PY) -m tests.release.sbom build/dist/*.whl build/dist/opwatch-$(VERSION).cdx.json
	@cat requirements/tui.txt requirements/analysis.txt | $(PY) -m cyclonedx_py requirements --output-reproducible \
		-o build/dist/opwatch-extras-$(VERSION).cdx.json -

# The source distribution, and the files by which Fedora and Arch build from it, in build/dist.
.PHONY: sdist
sdist: build
	@rm -f build/dist/*.tar.gz
	@$(PY) setup.py -q sdist -d build/dist 2>build/sdist.txt || { cat build/sdist.txt; exit 1; }
	@sed 's/@VERSION@/$(VERSION)/; s/@RPM_VERSION@/$(DEB_VERSION)/' tools/deploy/rpm/opwatch.spec \
		> build/dist/opwatch.spec
	@sum=$$(sha256sum < build/dist/opwatch-$(VERSION).tar.gz) && sed "s/@VERSION@/$(VERSION)/; s/@SHA256@/$${sum%% *}/" \
		tools/deploy/arch/PKGBUILD > build/dist/PKGBUILD

# All files of a release, in build/release, from a clone of the last commit; docs/releasing.md.
.PHONY: release reproducible
release:
	@test -z "$$(git status --porcelain)" || { echo "opwatch: commit or remove the changes first" >&2; exit 1; }
	@rm -rf build/release build/clone; mkdir -p build/release
	@git clone -q . build/clone
	$(MAKE) -s -C build/clone sdist sbom deb
	@cp build/clone/build/dist/* build/clone/build/deb/*.deb build/release/
	@cd build/release && sha256sum * > ../SHA256SUMS && mv ../SHA256SUMS . && cat SHA256SUMS

# Builds wheel and Debian packages of the last commit in two folders; both give the same bytes. Ten minutes.
reproducible:
	@rm -rf build/first build/the-second
	@for folder in build/first build/the-second; do git clone -q . $$folder || exit 1; done
	@for folder in build/first build/the-second; do $(MAKE) -s -C $$folder wheel deb || exit 1; done
	@cd build/first/build && for file in dist/*.whl deb/*.deb; do \
		cmp "$$file" "../../the-second/build/$$file" && sha256sum "$$file" || exit 1; done

# Debian packages of this checkout, in build/deb; the version is that of opwatch/__init__.py. DEB_ARCH=arm64 builds for
# another architecture, with Debian's cross compiler and the libraries of that architecture.
DEB_PACKAGES := debhelper dh-python lintian python3-setuptools
DEB_VERSION = $(subst .dev,~dev,$(VERSION))
# Two builds of a commit give the same bytes.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)

.PHONY: deb
deb: packages
	$(call install_packages,$(DEB_PACKAGES))
	@rm -rf build/deb; mkdir -p build/deb/opwatch
	@git ls-files -z | tar -c --null -T - | tar -x -C build/deb/opwatch
	@cp -r tools/deploy/debian build/deb/opwatch/debian
	@printf 'opwatch (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n' '$(DEB_VERSION)' \
		"$$(sed -n 's/^Maintainer: //p' tools/deploy/debian/control)" "$$(date -R -u -d @$$SOURCE_DATE_EPOCH)" \
		> build/deb/opwatch/debian/changelog
	@cd build/deb/opwatch && dpkg-buildpackage -b -us -uc $(DEB_ARCH:%=-a%) > ../build.txt 2>&1 || { tail -30 ../build.txt; exit 1; }
	@ls build/deb/*.deb
	@# The project has no mail address. A distribution's maintainer puts in theirs.
	lintian --allow-root --fail-on error,warning --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog \
		build/deb/*.changes

# Builds the packages in roots of Debian 12 and 13, and installs, upgrades, removes and purges them, as root. The first
# run fetches the roots, a gigabyte. SUITES=trixie takes one of them; SUITES=arm64 only cross-builds
# packages and a wheel, which make test-arm64 runs.
.PHONY: test-packages
test-packages: build
	$(call install_packages,mmdebstrap)
	$(PY) -m tests.release.debian $(SUITES)

demo: build
	@$(PY) -m opwatch.tools.demo

# Each file of the kernel tests uses disks of its own, so several files run at a time. 0: one after the other.
KERNEL_WORKERS := 4
PARALLEL = -n $(KERNEL_WORKERS) --dist loadfile --no-loadscope-reorder

# Leaves out the cases marked as manual: further values of a parameter, and long runs. Up to three tests that fail
# beside others are repeated alone, and are named if they pass then (tests/repeat.py). A test that hangs fails at its
# timeout.
test: build
	$(call install_packages,$(LOAD_PACKAGES) $(SHELL_PACKAGES))
	@echo "opwatch: 1 of 2: tests without privileges; about 7 minutes on two idle processors"
	PYTEST_TIMEOUT=300 $(PY) -m tests.repeat -n auto --maxprocesses 4 --durations=10 -m 'not manual' tests/unit
	@echo "opwatch: 2 of 2: tests of the C code, and of this kernel with loop devices; about 11 minutes"
	PYTEST_TIMEOUT=900 $(PY) -m tests.repeat $(PARALLEL) --durations=40 -m 'not manual' tests/native tests/kernel

# Adds the manual cases, about 10 minutes, and guests, about 45 minutes for each kernel of tests/vm/kernels.toml.
test-all: test
	$(PY) -m pytest $(PARALLEL) -m manual tests/unit tests/native tests/kernel
	$(MAKE) test-vm

test-kernel: build
	$(call install_packages,$(LOAD_PACKAGES) $(SHELL_PACKAGES))
	OPWATCH_REQUIRE=kernel $(PY) -m pytest $(PARALLEL) tests/kernel

# All kernels of tests/vm/kernels.toml, or KERNEL=6.12; all tests, or those that match TEST=nvme, or with
# TIER=ci the tier that kernels.toml names for each kernel. At most two guests run at a time (slots.py).
test-vm: build
	$(call install_packages,$(VM_PACKAGES))
	OPWATCH_VM_KERNEL='$(KERNEL)' OPWATCH_VM_TIER='$(TIER)' $(PY) -m tests.repeat tests/vm -n 2 --maxschedchunk 1 \
		--durations=0 --durations-min=5 $(if $(TIER),-m 'not manual') $(if $(TEST),-k '$(TEST)')

# A guest of another architecture: its userspace is fetched, the extension cross-compiled.
test-arm64: build
	$(call install_packages,$(VM_PACKAGES) $(ARM64_PACKAGES))
	OPWATCH_REQUIRE=vm,arm64 $(PY) -m pytest tests/vm/test_arm64.py

# Makes the table of docs/exactness.md from guests with every kernel: all tests that record rows.
exactness: build
	$(call install_packages,$(VM_PACKAGES) $(ARM64_PACKAGES))
	rm -rf build/exactness
	OPWATCH_REQUIRE=vm $(PY) -m pytest tests/vm -m notes_rows -n 2 --maxschedchunk 1
	$(PY) -m tests.vm.exactness

# Manual: a million requests and web configs for the exporter.
.PHONY: fuzz-web
fuzz-web: build
	$(PY) -m tests.fuzz.web $(or $(INPUTS),1000000)

# Manual or weekly: ten million damaged pages and reports, a quarter of an hour of one core.
fuzz-counters: build
	$(PY) -m tests.fuzz.counters $(or $(INPUTS),10000000)

# Manual: ten million inputs in every format that opwatch reads (docs/fuzzing.md). SEED and BEGIN continue an
# interrupted run.
fuzz-all: build
	$(PY) -m tests.fuzz $(or $(INPUTS),10000000) $(or $(SEED),$$RANDOM) $(or $(BEGIN),0)

# Manual, an hour of one core: recordings with a hostile structure must be read within bounds of memory and time;
# damaged ones must not yield a value that differs from the recorded one.
fuzz-recordings: build
	$(PY) -m tests.fuzz.hostile $(or $(INPUTS),100000) $(or $(SEED),$$RANDOM)
	$(PY) -m tests.fuzz.hostile.damage $(or $(DAMAGED),1100) $(or $(SEED),$$RANDOM)

# Manual, half an hour: kills record and flight, and ends a sweep, at KILLS moments each, chosen by SEED.
test-kills: build
	OPWATCH_KILLS=$(or $(KILLS),50) OPWATCH_SEED=$(or $(SEED),$$RANDOM) OPWATCH_REQUIRE=kernel \
		$(PY) -m pytest -v -n 0 tests/kernel/recording tests/kernel/sweep/test_sweep.py \
		-k "killed_recorder or ended_at_any_moment"

# Learns the units of SATA drives from rows of drives (docs/method-waf.md), and estimates the errors; two minutes.
learn-counters: build
	$(PY) -m tests.learning $(or $(ROWS),$(error ROWS=FILE: drives as JSON, one per line, optionally gzipped)) $(OUT)

# Makes the table of docs/method-why.md, from runs in build/why-runs; resumes. As root, 140 s per run.
why-matrix: build
	$(PY) -m tests.why.matrix --out build/why-runs --seeds $(or $(SEEDS),20) --jobs $(or $(JOBS),1) --write

# Answers to runs of the drive's timing model in virtual time, also for docs/method-why.md; 20 seeds take an hour of
# CPU time. Choose seeds on which no rule was tuned (1 to 3000 were used).
why-virtual: build
	$(PY) -m tests.why.virtual --seeds $(or $(SEEDS),20) --first $(or $(FIRST),3001) --jobs $(or $(JOBS),1) --write

# Makes the table of docs/method-waf.md. Manual, about twenty minutes.
waf-runs: build
	$(PY) -m tests.bench.waf_runs

test-analysis: build
	@$(call pip_install,$(PY),readers)
	$(PY) -m tests.analysis

# Rules, dashboards and manifests of a simulated fleet, slow drives in ten fleets, and tables of Delta and Iceberg, with
# servers of Debian and types of npm; ten minutes. The chart is rendered if helm is installed.
test-fleet: build
	@$(call pip_install,$(PY),fleet)
	OPWATCH_REQUIRE=fleet OPWATCH_SEED=$(or $(SEED),100) $(PY) -m pytest tests/fleet -n 0 -s --durations=0 --durations-min=5

# Questions about 8,000 drives; one Prometheus and 200 hosts, six minutes; false alarms over ten days of 2,400 drives,
# 36 minutes.
bench-fleet: build
	$(if $(OPWATCH_SMOKE),,@$(call pip_install,$(PY),readers))
	$(PY) -m tests.bench.fleet_parquet_bench
	$(PY) -m tests.bench.fleet_scrapes
	$(PY) -m tests.bench.fleet_alerts

lint: build
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy -p opwatch
	$(PY) -m mypy tests
	clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')
	$(PY) -m tests.commits

# Fixes what lint reports, as far as the tools can.
format: build
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	clang-format -i $$(git ls-files '*.c' '*.h')

# Measures the language of the code; SAMPLE=50 draws comments, messages and test names to read.
prose:
	@$(PYTHON) -m tests.prose --sample $(or $(SAMPLE),0)

# Makes the pictures of README and docs/tour.md on a simulated drive; all pages are in build/pictures.
pictures: build
	$(call install_packages,chromium)
	TEXTUAL_COLOR_SYSTEM=truecolor $(PY) -m tests.pictures

# Generates or checks documents: the support matrix, the causes, the schemas of sweeps, the manual.
docs: build
	$(call install_packages,mandoc)
	$(PY) -m tests.vm.report.matrix --write
	$(PY) -m tests.supported --write
	$(PY) -m tests.causes --write
	$(PY) -m tests.schemas --write
	@mkdir -p build/docs
	mandoc -T lint -W warning docs/man/opwatch.1 docs/man/opwatch-broker.8 build/man/man1/*.1
	mandoc -T html docs/man/opwatch.1 > build/docs/opwatch.1.html

bench: bench-tracing bench-drive bench-counters bench-mounts bench-dashboard bench-metrics

bench-tracing: build
	$(call install_packages,$(BENCH_PACKAGES))
	$(PY) -m tests.bench

# Manual, an hour: a million saved drives with wrong values and a valid checksum, under the sanitizers.
fuzz-state: build
	$(MAKE) -C tests/native fuzz-state STATE_INPUTS=$(or $(INPUTS),1000000)

# Manual, two minutes: a million random and damaged requests to the broker, under the sanitizers. SEED starts others.
fuzz-broker: build
	$(MAKE) -C tests/native fuzz-broker BROKER_INPUTS=$(or $(INPUTS),1000000) SEED=$(or $(SEED),1)

# Manual: IOPS of null_blk at saturation in a guest, for the table of docs/overhead.md.
bench-saturation: build
	$(call install_packages,$(VM_PACKAGES) $(BENCH_PACKAGES))
	$(PY) -m tests.vm.run --kernel $(or $(KERNEL),6.12) -- $(abspath $(PY)) -m tests.bench.saturation

# Ten million operations against a model, under the sanitizers.
fuzz: build
	$(MAKE) -C tests/native fuzz

build/ftl_speed: tests/bench/ftl_speed.c $(wildcard opwatch/ftl/*/*.[ch])
	@mkdir -p build
	$(CC) -std=gnu11 -O3 -Wall -Wextra -Werror -Iopwatch $< $(wildcard opwatch/ftl/*/*.c) -o $@ -lm

bench-drive: build build/ftl_speed
	$(PY) -m tests.bench.ftl_oracles
	$(PY) -m tests.bench.uneven_bench
	build/ftl_speed $(if $(OPWATCH_SMOKE),smoke)
	$(PY) -m tests.bench.drive_bench
	$(PY) -m tests.bench.stale_bench
	$(PY) -m tests.bench.history_bench
	$(PY) -m tests.bench.seeds_bench.cliff
	$(PY) -m tests.bench.seeds_bench.cpu

# Runs the targets that documents name and CI does not run otherwise, once and with tiny sizes: each has to start and
# to end; figures are not judged. tests/unit/house/test_make.py lists the targets that are left out, with the reasons.
define smoke_run
	@begin=$$SECONDS; OPWATCH_SMOKE=1 $(MAKE) -s $(1) >build/smoke.txt 2>&1 \
		|| { cat build/smoke.txt; exit 1; }; echo "make $(1): $$((SECONDS - begin)) s"
endef

smoke: build
	$(call smoke_run,bench-trim)
	$(call smoke_run,bench-why)
	$(call smoke_run,why-virtual SEEDS=1)
	$(call smoke_run,trim-stacks SEEDS=6)
	$(call smoke_run,waf-runs)
	$(call smoke_run,learn-counters ROWS=tests/fixtures/good/smart_rows/drives.jsonl OUT=build/smoke-rules.toml)
	$(call smoke_run,fuzz INPUTS=1000)
	$(call smoke_run,fuzz-broker INPUTS=5000)
	$(call smoke_run,fuzz-counters INPUTS=1000)
	$(call smoke_run,fuzz-web INPUTS=1000)
	$(call smoke_run,fuzz-all INPUTS=100)
	$(call smoke_run,fuzz-recordings INPUTS=100 DAMAGED=5)
	$(call smoke_run,docs)
	$(if $(QUICK),,$(call smoke_run,bench))
	$(if $(QUICK),,$(call smoke_run,bench-steady))
	$(if $(QUICK),,$(call smoke_run,bench-predictions))
	$(if $(QUICK),,$(call smoke_run,bench-blame))
	$(if $(QUICK),,$(call smoke_run,fuzz-state INPUTS=100))
	$(if $(QUICK),,$(call smoke_run,bench-fleet))

bench-trim: build
	$(PY) -m tests.bench.trim_bench

# Judges SERIES=400 new series with the steady-state rule, for docs/method-sweep.md; some minutes. SEED repeats a run.
bench-steady: build
	$(PY) -m tests.bench.steady_bench $(SERIES) $(SEED)

# Searches periods in SERIES=200 new series of noise, and of noise with stalls, for each of four correlations.
bench-why: build
	$(PY) -m tests.bench.why_statistics $(SERIES) $(SEED)
	$(PY) -m tests.bench.why_speed

bench-predictions: build
	$(PY) -m tests.bench.predictions_bench $(SYSTEMS) $(SEED)

# Random stacks of SEEDS=FIRST:LAST: on this machine as root, or with KERNEL= in a guest that has more layers.
trim-stacks: build
	$(call install_packages,$(VM_PACKAGES))
	$(if $(KERNEL),OPWATCH_VM_GUEST=$(KERNEL) $(PY) -m tests.vm.run --kernel $(KERNEL) --memory 4096 --timeout 7200 \
		--devices virtio-blk-deaf --)\
		$(PY) -m tests.stacks $(or $(SEEDS),0:20)

bench-blame: build
	$(PY) -m tests.bench.blame_bench $(DRIVES) $(SEED)

bench-counters: build
	$(PY) -m tests.bench.counters_bench

bench-mounts: build
	$(PY) -m tests.bench.mounts_bench

bench-dashboard: build
	$(PY) -m tests.bench.dashboard_bench

.PHONY: bench-metrics
bench-metrics: build
	$(PY) -m tests.bench.metrics_bench

# Manual, ten minutes: figures of the exporter beside Debian's node_exporter, for docs/overhead.md.
.PHONY: bench-exporter
bench-exporter: build
	$(PY) -m tests.bench.exporter_bench

clean:
	find opwatch tools collectors -name __pycache__ -prune -exec rm -rf {} +
	rm -rf build .venv *.egg-info opwatch/*.so opwatch/drive/opwatch-drive-server \
		tools/broker/opwatch-broker


.PHONY: smoke format prose pictures help packages build demo test test-all test-kernel test-kills test-vm test-arm64 exactness docs lint bench bench-tracing bench-saturation bench-trim bench-steady bench-why bench-drive bench-counters bench-mounts bench-dashboard fuzz fuzz-state fuzz-counters fuzz-all fuzz-recordings learn-counters waf-runs why-matrix why-virtual test-analysis trim-stacks bench-metrics fuzz-broker fuzz-web test-fleet bench-fleet bench-predictions bench-blame clean
