# What needs RocksDB's C++ builds it once, into a cache outside the target directories that all profiles link
# (STILLPOINT_ROCKSDB_CACHE, else ~/.cache/stillpoint). `cargo test` alone needs none of this.

SHELL := /bin/sh
CARGO ?= cargo
# Options of the demo: make demo ARGS="--kills 5 --keys 1000000"
ARGS ?=

# `.ci/rocksdb env` says on standard error what it builds and how long that takes, and prints what cargo needs.
WITH_ROCKSDB = environment=$$(.ci/rocksdb env) && eval "$$environment"
# Another tokio under the same names, in a target directory of its own; `tokio_unstable` lets its channels be seeded.
SIMULATED = --cfg madsim --cfg tokio_unstable
COMMAND = --features cli,rocksdb --bin stillpoint
SIMULATOR = $(CARGO) run --quiet --release --package stillpoint-sim --
# Standard output is left to what is run.
SAY = @printf '%s\n' >&2

.DEFAULT_GOAL := help
.PHONY: help demo quickstart test setup sim-figures sim-soak

help:
	@printf '%s\n' 'make quickstart   three checkpoints, a simulated crash, a restore; state in memory; needs no C++'
	@printf '%s\n' 'make demo         checkpoints of a RocksDB under load, SIGKILL while it uploads, restore, comparison'
	@printf '%s\n' '                  options: make demo ARGS="--kills 5 --keys 1000000"; all: make demo ARGS=--help'
	@printf '%s\n' 'make test         all tests: those that need no C++, then those with RocksDB and the command'
	@printf '%s\n' 'make setup        builds RocksDB, as demo and test do by themselves: once, some 8 minutes on 2 cores'

setup:
	$(SAY) '== RocksDB: built once into a cache, some 8 minutes on 2 cores; nothing to do if it is there'
	@.ci/rocksdb

quickstart:
	$(SAY) '== quickstart: building takes some 1 minute the first time'
	@$(CARGO) run --quiet --example quickstart

demo: setup
	$(SAY) '== building the command with optimizations: some 3 minutes on 2 cores the first time'
	@$(WITH_ROCKSDB) && $(CARGO) build --release $(COMMAND)
	$(SAY) '== demo: under a minute'
	@$(WITH_ROCKSDB) && $(CARGO) run --quiet --release $(COMMAND) -- demo $(ARGS)

test: setup
	$(SAY) '== tests that need no C++: some 5 minutes on 2 cores the first time'
	@$(CARGO) test
	$(SAY) '== a crate outside the workspace holds a store of its own to the contract: some 1 minute on 2 cores'
	@$(CARGO) test --manifest-path examples/own_store/Cargo.toml --locked --target-dir target --test contract
	$(SAY) '== a hundred thousand seeds, and the rare situations that they must reach: some 5 minutes on 2 cores'
	@$(SIMULATOR) run --seeds 0..100000
	@$(SIMULATOR) run --length long --seeds 0..100
	@$(SIMULATOR) marks --seeds 0..20000
	@($(SIMULATOR) digests --seeds 0..5 && $(SIMULATOR) digests --length long --seeds 0..1) | cmp - sim/tests/golden_digests.txt
	@mkdir -p target/digests && $(SIMULATOR) digests --seeds 0..5000 >target/digests/forward
	@$(SIMULATOR) digests --seeds 2500..5000 >target/digests/later && $(SIMULATOR) digests --seeds 0..2500 | cat - target/digests/later | cmp - target/digests/forward
	$(SAY) '== every order of what can happen at small bounds, and every crash point: some 3 minutes on 2 cores'
	@$(SIMULATOR) explore --states-min 1000000 --memory-max 8192
	@$(SIMULATOR) crash-points sim/tests/scenarios/*.txt
	$(SAY) '== the runtime on a simulated executor, histories of fixed seeds: some 4 minutes on 2 cores the first time'
	@MADSIM_TEST_SEED=1 MADSIM_TEST_NUM=200 RUSTFLAGS='$(SIMULATED)' $(CARGO) test --target-dir target/madsim --package stillpoint-sim --features suite --test madsim
	$(SAY) '== tests with RocksDB and the command: some 10 minutes on 2 cores the first time'
	@$(WITH_ROCKSDB) && $(CARGO) test --features rocksdb,cli
	$(SAY) '== snapshots once more, of the binding that takes MultiThreaded for granted: some 3 minutes the first time'
	@$(WITH_ROCKSDB) && $(CARGO) test --package stillpoint --features rocksdb,rocksdb/multi-threaded-cf --test state_rocksdb

# The result files of the simulator and the page that shows them; some 10 minutes on 2 cores. A soak is asked for by itself:
# make sim-soak MINUTES=40
MINUTES ?= 40
sim-figures:
	@$(SIMULATOR) bench --json >sim/results/bench.json
	@$(SIMULATOR) bugs --ranges 25 --stories --json >sim/results/bugs.json
	@$(SIMULATOR) run --seeds 0..100000 --json >sim/results/run.json
	@$(SIMULATOR) marks --seeds 0..20000 --json >sim/results/marks.json
	@$(SIMULATOR) explore --json >sim/results/explore.json
	@$(SIMULATOR) crash-points sim/tests/scenarios/*.txt --json >sim/results/crash-points.json
	@STILLPOINT_REWRITE=1 $(CARGO) test --quiet --package stillpoint-sim --test figures

sim-soak:
	@$(SIMULATOR) soak --minutes $(MINUTES) --result sim/results/soak.json
