# The two commands of the README are `make demo` and `make test`. Nothing here needs a cloud or a cluster.
.DEFAULT_GOAL := help
CARGO ?= cargo
# The EC2 SDK takes minutes to build. What is built with it shares the crates of the others, but is nobody else's `target/debug/provisor`.
AWS := --locked --features aws --target-dir target/aws --config 'build.build-dir="{workspace-root}/target"'
# Many tests wait for other processes most of the time: two more at once than there are processors.
export RUST_TEST_THREADS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)

.PHONY: help demo test check accept bench aws tools fuzz

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## run the whole job on a simulated cluster: a commit becomes running nodes
	@$(CARGO) run --quiet --locked -- demo

tools: ## build what only tests run, once: a Kubernetes control plane, helm, kubeconform, actionlint, Karpenter
	@tests/control-plane/ensure >/dev/null
	@for tool in actionlint helm kubeconform karpenter; do tests/go-tool $$tool >/dev/null || exit 1; done

test: tools ## run all tests; those of EC2 build its SDK (minutes, once) and an emulator (tests/emulator)
	@CARGO="$(CARGO)" tests/all $(AWS)

check: ## what must hold before a commit: format, lints, all tests
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(MAKE) test

accept: tools ## rewrite generated files and recorded output; then read the diff
	UPDATE=1 $(CARGO) test --locked

bench: ## measure what docs/reference/performance.md states
	$(CARGO) bench --locked

fuzz: ## throw a minute of odd inputs at each reader of what others wrote; builds them first (minutes)
	@fuzz/run 60

aws: ## lint the build that talks to real EC2 (minutes: its SDK is large)
	$(CARGO) clippy $(AWS) --all-targets -- -D warnings
