# Targets a person types: demo, run, test.  The rest serves them.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP = -m pip --disable-pip-version-check --no-input --quiet
BIN = .venv/bin
# Install a lock file into an environment: uv takes half of pip's time, and pip reaches mirrors that uv was not told of.
LOCKED = $(1)/bin/python $(PIP) install --require-hashes -r requirements/install.lock && \
	$(1)/bin/uv pip install --quiet --python $(1)/bin/python --require-hashes -r $(2) 2>/dev/null || \
	$(1)/bin/python $(PIP) install --require-hashes -r $(2)
# Brokers and commands are started by the hundred, and compile themselves at each start where this is set.
export PYTHONDONTWRITEBYTECODE =
# A worker for each core; tests/support/spread.py deals them their tests.
PYTEST = $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

JAVA = $(shell for j in "$$JAVA_HOME/bin/java" "$$(command -v java)" /usr/lib/jvm/*/bin/java; do \
	v=$$("$$j" -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p'); \
	[ "$${v:-0}" -ge 17 ] 2>/dev/null && echo "$$j" && break; done)

# What the installed wheel runs with, and nothing else: the locked packages without our extras.
RUNTIME = build/runtime

# Official clients of other languages: sources in tests/clients, everything made from them here.
CLIENTS = build/clients
GO = $(firstword $(wildcard /usr/local/go/bin/go) go)
JAVA_CLIENTS = $(wildcard tests/clients/java/pom.xml tests/clients/java/*/pom.xml tests/clients/java/*/horolog/*/*.java)

.PHONY: demo run test test-slow test-clients test-page test-full bench sim setup java tools page-tools clients check fmt proto lock clean

demo: .venv/ready .venv-client/ready java  ## replay a stormy day of flights through the broker
	$(BIN)/python examples/flights/run.py

run: .venv/ready  ## a broker that stays
	$(BIN)/horolog serve

test:  ## lint, types and the quick tests
	@$(MAKE) --no-print-directory --jobs 3 setup check
	$(PYTEST) -m "not slow and not full and not clients and not page" --durations=20

test-slow: .venv/ready .venv-client/ready java  ## the slow rings, as far as CI affords
	$(PYTEST) -m "slow and not full and not clients and not page" -v --durations=0

test-clients: .venv/ready .venv-client/ready clients  ## the official clients of Java, Node.js, Go and C++
	$(BIN)/python -m pytest --numprocesses 4 --dist loadfile -m "clients and not full" --durations=20 tests/clients

test-page: .venv/ready page-tools $(RUNTIME)/ready  ## the page in a real browser, the metrics in a real Prometheus, the packages
	$(PYTEST) -m "page and not full" --durations=20

test-full:  ## everything, without a limit of time
	@$(MAKE) --no-print-directory --jobs 3 setup check clients page-tools $(RUNTIME)/ready $(CLIENTS)/rust/ready
	$(PYTEST) -v --durations=0

bench: .venv/ready java  ## benchmarks; plots go to docs/benchmarks
	$(BIN)/python -m benchmarks

sim: .venv/ready  ## the simulator, 10 000 seeds
	$(BIN)/python -m horolog.testing.simulator --seeds 10000

setup: .venv/ready .venv-client/ready java

java:  ## Java for the jobs on Spark: installed when it is missing and we may
	@test -n "$(JAVA)" || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		{ apt-get install -qq -y openjdk-17-jre-headless >/dev/null 2>&1 || \
		{ apt-get update -qq && apt-get install -qq -y openjdk-17-jre-headless >/dev/null; } } } || \
		{ echo "Spark needs Java 17 or newer; please install it (for example: apt-get install openjdk-17-jre-headless)"; exit 1; }

tools:  ## a JDK, Maven, Node.js, npm and Go for the clients: installed when they are missing and we may
	@command -v javac mvn node npm $(GO) >/dev/null && test -n "$(JAVA)" || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		{ apt-get install -qq -y openjdk-17-jdk-headless maven nodejs npm golang-go >/dev/null 2>&1 || \
		{ apt-get update -qq && apt-get install -qq -y openjdk-17-jdk-headless maven nodejs npm golang-go >/dev/null; } } } || \
		{ echo "The clients need a JDK (17 or newer), Maven, Node.js (18 or newer), npm and Go (1.24 or newer); please install them (for example: apt-get install openjdk-17-jdk-headless maven nodejs npm golang-go)"; exit 1; }

page-tools:  ## Chromium, Prometheus and systemd-analyze: installed when they are missing and we may
	@test "$$(command -v chromium prometheus promtool systemd-analyze | wc -l)" = 4 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		{ apt-get install -qq -y --no-install-recommends chromium prometheus systemd >/dev/null 2>&1 || \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium prometheus systemd >/dev/null; } } } || \
		{ echo "The page's tests need Chromium, Prometheus, promtool and systemd-analyze; please install them (for example: apt-get install chromium prometheus systemd)"; exit 1; }

clients: $(CLIENTS)/java/ready $(CLIENTS)/node/ready $(CLIENTS)/cpp/ready $(CLIENTS)/go4 $(CLIENTS)/go5 $(CLIENTS)/h2spec

$(CLIENTS)/java/ready: $(JAVA_CLIENTS) | tools
	mvn --batch-mode --quiet --no-transfer-progress --file tests/clients/java/pom.xml process-classes
	@touch $@

$(CLIENTS)/node/ready: tests/clients/node/package.json tests/clients/node/package-lock.json | tools
	@mkdir -p $(@D)
	cp $^ $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --silent
	@touch $@

$(CLIENTS)/h2spec: $(wildcard tests/clients/h2spec/*) | tools
	cd tests/clients/h2spec && GOFLAGS=-mod=readonly GOTOOLCHAIN=local $(GO) build -o $(CURDIR)/$@ github.com/summerwind/h2spec/cmd/h2spec

$(CLIENTS)/go4: $(wildcard tests/clients/go4/*) | tools
	cd tests/clients/go4 && GOFLAGS="-mod=readonly -buildvcs=false" GOTOOLCHAIN=local $(GO) build -o $(CURDIR)/$@

$(CLIENTS)/go5: $(wildcard tests/clients/go5/*) | tools
	@v=$$($(GO) env GOVERSION); printf 'go1.24\n%s\n' "$$v" | sort --check=quiet --version-sort || \
		{ echo "The Go client of 5.x needs Go 1.24 or newer, and this is $$v; please install it (for example: https://go.dev/dl)"; exit 1; }
	cd tests/clients/go5 && GOFLAGS="-mod=readonly -buildvcs=false" GOTOOLCHAIN=local $(GO) build -o $(CURDIR)/$@

$(CLIENTS)/cpp/ready: requirements/cpp.lock
	$(PYTHON) -m venv $(@D)
	$(call LOCKED,$(@D),requirements/cpp.lock)
	@touch $@

$(CLIENTS)/rust/ready: $(wildcard tests/clients/rust/Cargo.* tests/clients/rust/src/*.rs)
	@command -v cargo >/dev/null || { echo "The Rust client needs Cargo (1.80 or newer); please install it (for example: https://rustup.rs)"; exit 1; }
	cargo build --quiet --locked --manifest-path tests/clients/rust/Cargo.toml --target-dir $(@D)
	@touch $@

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: .venv/ready
	$(BIN)/python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src \
		src/horolog/protocol/grpc/messaging.proto

lock:  ## write the lock files anew (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		--all-extras pyproject.toml requirements/build.in -o requirements/all.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		requirements/client.in -o requirements/client.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		requirements/install.in -o requirements/install.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		--constraint requirements/all.lock pyproject.toml -o requirements/runtime.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		--constraint requirements/all.lock requirements/build.in -o requirements/build.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		requirements/cpp.in -o requirements/cpp.lock

.venv/ready: requirements/all.lock requirements/install.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "horolog needs Python 3.11 or newer; please install it (for example: apt-get install python3 python3-venv)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(call LOCKED,.venv,requirements/all.lock)
	$(BIN)/python $(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(RUNTIME)/ready: requirements/runtime.lock requirements/install.lock
	$(PYTHON) -m venv --clear $(RUNTIME)
	$(call LOCKED,$(RUNTIME),requirements/runtime.lock)
	@touch $@

.venv-client/ready: requirements/client.lock
	@test -n "$(PYTHON)" || { echo "horolog needs Python 3.11 or newer; please install it (for example: apt-get install python3 python3-venv)"; exit 1; }
	$(PYTHON) -m venv .venv-client
	$(call LOCKED,.venv-client,requirements/client.lock)
	@touch $@

clean:
	rm -rf .venv .venv-client build
