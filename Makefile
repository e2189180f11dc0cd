# Everything one types here. `make` alone prints the list; the work is done by CMake, pip and scripts/.
.DEFAULT_GOAL := help
.PHONY: help demo test test-hosts wheel fio-engine bench gpu-check gpu-first-hour figures figures-gpu lint format fuzz fuzz-night fuzz-coverage soak install clean bench-attacks bootstrap-demo bootstrap-test
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# Cached objects are good only for the kind of processor they were made for (-march=native).
export CCACHE_NAMESPACE := flashmob-$(shell grep -m1 -E '^(flags|Features)' /proc/cpuinfo | cksum | cut -d' ' -f1)
export FUZZ_SECONDS ?= $(if $(filter true,$(CI)),20,10)
export FLASHMOB_WERROR ?= $(if $(filter true,$(CI)),ON,OFF)
# Several sources compiled as one (cmake/FlashmobRooms.cmake): OFF makes a whole build dearer and a small change cheaper.
export FLASHMOB_UNITY ?= ON

PACKAGE_SOURCES := pyproject.toml CMakeLists.txt scripts/install.sh \
  $(shell find cmake include src gpu python profiles -type f ! -name '*_test.cpp' ! -path 'gpu/tests/*' ! -path 'gpu/spin/*' ! -path "*/__pycache__/*" 2>/dev/null)

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

demo: install ## build, then watch an SSD that does not exist serve verified reads (under 30 s once built)
	@.venv/bin/flashmob demo

test: bootstrap-test install ## every test: C++, sanitizers, fuzzers, Python, style (FUZZ_SECONDS=10)
	@scripts/test.sh

test-hosts: bootstrap-test install ## the SSD used by Linux guests and by firmware, in QEMU (a few minutes)
	@scripts/test_hosts.sh

fio-engine: install ## an ioengine for the fio that is installed here, so that fio drives emulated SSDs
	@scripts/fio_engine.sh

bench: bootstrap-test ## measure this machine: raw copy bound, frontend, data path, timing model
	@scripts/bench.sh

bench-attacks: install ## a host's latency alone and beside hosts that mean it ill (a few minutes, on a quiet machine)
	@.venv/bin/python bench/attacks.py

gpu-check: bootstrap-test install ## GPU tests and benchmarks with data checks, JSON and figures; on the CPU where no GPU is
	@scripts/gpu_check.sh

gpu-first-hour: bootstrap-test install ## the first hour on a GPU, step by step, resumable; STAND_IN=1 rehearses it without one
	@scripts/gpu_first_hour.sh $(if $(STAND_IN),--stand-in)

figures: install ## sweep devices and loads in virtual time, and draw what comes out (some minutes)
	@.venv/bin/flashmob sweep --out out/figures

figures-gpu: bootstrap-test install ## the SSD inside the GPU: all sweeps of its evaluation; small and in virtual time where no GPU is
	@scripts/figures_gpu.sh

lint: bootstrap-test install ## ruff, mypy, clang-format and clang-tidy, changing nothing
	@scripts/lint.sh

format: install ## lay out all C++ and Python code
	@scripts/format.sh

fuzz: bootstrap-test ## run every fuzzer for FUZZ_SECONDS each, two at a time
	@scripts/fuzz.sh

fuzz-night: bootstrap-test ## all fuzzers for FUZZ_NIGHT_MINUTES (480) together, with a corpus that grows
	@scripts/fuzz_night.sh

fuzz-coverage: bootstrap-test ## which lines of parsers and state machines the fuzzers' inputs reach
	@scripts/fuzz_coverage.sh

soak: bootstrap-test install ## hosts of every kind, faults, kills and churn at once for SOAK_MINUTES=60, with data and resources checked
	@scripts/soak.sh

wheel: bootstrap-demo ## a wheel for other machines in dist/, tried in an environment of its own (some minutes the first time)
	@scripts/wheel.sh

install: .venv/.installed ## build the flashmob command into .venv

clean: ## remove everything that make made
	@rm -rf build .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

bootstrap-demo:
	@scripts/bootstrap.sh demo

bootstrap-test:
	@scripts/bootstrap.sh test

.venv/.installed: $(PACKAGE_SOURCES) | bootstrap-demo
	@scripts/install.sh
