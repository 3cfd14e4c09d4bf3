# The two commands of the README are `make demo` and `make test`. Nothing here needs a cloud or a cluster.
.DEFAULT_GOAL := help
CARGO ?= cargo
# The EC2 SDK takes minutes to build. What is built with it shares the crates of the others, but is nobody else's `target/debug/provisor`.
AWS := --locked --features aws --target-dir target/aws --config 'build.build-dir="{workspace-root}/target"'
# Many tests wait for other processes most of the time: two more at once than there are processors.
export RUST_TEST_THREADS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
# Tests that never wait, and are run beside those of EC2, which do.
PATIENT := capacity:: scheduling::
BUT_PATIENT := $(addprefix --skip=,$(PATIENT))

.PHONY: help demo test check accept bench aws tools fuzz

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## run the whole job on a simulated cluster: a commit becomes running nodes
	@$(CARGO) run --quiet --locked -- demo

tools: ## build what only tests run, once: a Kubernetes control plane, helm, kubeconform, actionlint, Karpenter
	@tests/control-plane/ensure >/dev/null
	@for tool in actionlint helm kubeconform karpenter; do tests/go-tool $$tool >/dev/null || exit 1; done

test: tools ## run all tests; those of EC2 build its SDK (minutes, once) and an emulator (tests/emulator)
	@# The SDK is built while the others run, where they leave the processors idle; what goes wrong with it is told when its turn comes.
	@# Two builds wait for one another, so that of the others, which is needed first, has ten seconds to begin before it.
	@{ sleep 10; exec nice -n 10 $(CARGO) test $(AWS) --lib --test ec2 --no-run; } >/dev/null 2>&1 & sdk=$$!; \
	trap 'kill $$sdk 2>/dev/null' EXIT; \
	echo "$(CARGO) test --locked -- $(BUT_PATIENT)" && $(CARGO) test --locked -- $(BUT_PATIENT) && { wait $$sdk; true; }
	$(CARGO) test $(AWS) --lib io::cloud::aws
	@# The tests of EC2 mostly wait. What was skipped only wants a processor, and gets what they leave.
	@log=$$(mktemp); nice -n 19 $(CARGO) test --locked -- $(PATIENT) >$$log 2>&1 & patient=$$!; \
	trap 'kill $$patient 2>/dev/null; rm -f $$log' EXIT; \
	result=0; echo "$(CARGO) test $(AWS) --test ec2"; $(CARGO) test $(AWS) --test ec2 || result=$$?; \
	echo "$(CARGO) test --locked -- $(PATIENT)"; wait $$patient || result=$$?; cat $$log; exit $$result

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
