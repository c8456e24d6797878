# The front end. Every target sets up what it needs by itself (scripts/setup.sh).
.DEFAULT_GOAL := help
.PHONY: help build run test test-hosts test-clients test-long check-aof lint lint-deps dist deb docs bench bench-page bench-quick scaling bench-engine clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

build: ## build target/release/libmidi.so
	@bash scripts/cargo.sh build --release --locked

run: ## build, then start redis-server with midi in the foreground; PORT=, MIDI_PORT= and DATA= choose ports and data folder
	@bash scripts/run.sh

test: ## all tests on Redis 7.0, and those that talk to a host on Redis 8.6 and Valkey 9.1
	@bash scripts/test.sh

test-hosts: ## the tests that talk to a host on every host; HOSTS= chooses some
	@bash scripts/test-hosts.sh $(HOSTS)

test-clients: ## clients in Python, Node, Go and Java, redis_exporter, and Redis's own tools, against midi's port
	@bash scripts/test-clients.sh

test-long: ## loom, the sanitizers, the fuzzer and long random tests; STAGES= chooses some
	@bash scripts/test-long.sh $(STAGES)

check-aof: ## find damage in FILE=, a part of an AOF or its manifest; FIX=1 cuts it off, after a question
	@bash scripts/cargo.sh run --quiet --release --locked --bin midi-check-aof -- $(if $(FIX),--fix) "$(FILE)"

lint: ## formatting and clippy, warnings are errors
	@bash scripts/cargo.sh fmt --all --check
	@bash scripts/cargo.sh clippy --workspace --all-targets --locked -- -D warnings

lint-deps: ## advisories, licences and sources of every package that is used, with cargo-deny
	@bash scripts/lint-deps.sh

dist: ## what is released, in target/dist; TARGETS= chooses targets, CHECK=1 builds twice and compares
	@bash scripts/dist.sh

deb: ## Debian packages of what `make dist` has built
	@bash scripts/deb.sh

docs: ## the pages as a site, in target/site; SERVE=1 shows it in a browser and follows changes
	@bash scripts/docs.sh

bench: ## side-by-side experiments, and docs/benchmarks.md; EXP= chooses one section, RESUME=1 goes on where a run stopped
	@bash scripts/bench.sh --docs docs/benchmarks.md

bench-page: ## docs/benchmarks.md again, from the figures of the last whole run
	@bash scripts/cargo.sh run --locked -p midi-bench -- report --docs docs/benchmarks.md

bench-quick: ## the experiments with short rounds and fewer legs, for a look: below five minutes
	@bash scripts/bench.sh --quick

scaling: ## count what threads do to each other: docs/design/scaling.md has the model; takes five minutes
	@bash scripts/scaling.sh $(SHARDS)

bench-engine: ## micro-benchmarks of the engine alone
	@bash scripts/cargo.sh bench --locked

clean: ## remove everything that was built or downloaded; the data of `make run` stays
	rm -rf target
