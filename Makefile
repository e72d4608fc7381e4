# Thin targets; what they do stands in the scripts and programs they call.

ARGS ?=
DIR ?= tests/oracle/proxier

.PHONY: demo test lint oracle soak

# A whole cluster on this machine: three nodes, a LAN, a BGP router, clients. `make demo ARGS=--once` ends by itself.
demo:
	@deploy/setup.sh demo
	@cargo build --quiet --package roadstead
	@target/debug/roadstead demo $(ARGS)

# Everything that has to hold before a change lands; prints minutes by part.
test:
	@deploy/setup.sh test
	@tests/run.sh test

# Formatting and lints; with CI set, a warning is an error.
lint:
	@tests/run.sh lint

# Recorded packets of kube-proxy, replayed through our proxier. DIR is any folder of that format.
oracle:
	@deploy/setup.sh test
	@tests/run.sh oracle $(DIR)

# The same tests for longer: twenty times the mutated messages, the demo ten times.
soak:
	@deploy/setup.sh test
	@tests/run.sh soak
