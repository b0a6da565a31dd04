# How Kiln is built, tested and checked. `make` alone prints what there is.
#
# A build of Kubernetes (devcluster/) takes minutes. All commands below therefore see the same Go settings, so that
# build, test and lint share one build cache and it happens once; and they never run side by side.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# Shells that are not login shells often lack Go's own folder in PATH.
GO := $(or $(shell command -v go 2>/dev/null || true),$(wildcard /usr/local/go/bin/go))
ifneq ($(GO),)
export PATH := $(patsubst %/,%,$(dir $(GO))):$(PATH)
export GOFLAGS := $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath
endif
export CGO_ENABLED := 0
export GOWORK := off

# What the API server and kubectl of the embedded cluster say that they are: the version that devcluster/go.mod requires.
KUBERNETES_VERSION = $(shell go -C devcluster list -m -f '{{.Version}}' k8s.io/kubernetes)
KUBERNETES_PARTS = $(subst ., ,$(patsubst v%,%,$(KUBERNETES_VERSION)))
KUBERNETES_LDFLAGS = $(addprefix -X k8s.io/component-base/version., \
  gitVersion=$(KUBERNETES_VERSION) gitMajor=$(word 1,$(KUBERNETES_PARTS)) gitMinor=$(word 2,$(KUBERNETES_PARTS)))

MODULES := . devcluster tools
# Modules with Go code of their own.
CODE := . devcluster

# Where the integration tests find the programs they start.
export KILN_BIN := $(CURDIR)/bin
BIN := bin
TOOLS := bin/tools

# golangci-lint would like 6 GB for what devcluster/ imports; told to be modest, it takes 4 and no longer.
LINT := GOMEMLIMIT=3GiB "$(CURDIR)/$(TOOLS)/golangci-lint"
LINT_CONFIG := --config "$(CURDIR)/.golangci.yml"

##@ See it work

.PHONY: demo
demo: build ## Start a cluster, render sample packages, show what happened, stop it again
	@scripts/demo

.PHONY: dev
dev: build ## Start a cluster with the controller, leave them running, print the KUBECONFIG to use
	@scripts/dev up

.PHONY: dev-down
dev-down: ## Stop what `make dev` started
	@if [ -x $(BIN)/devcluster ]; then scripts/dev down; else echo "Nothing to stop: bin/devcluster is not built."; fi

##@ Build

.PHONY: build
build: build-kiln build-devcluster ## Build every program into bin/

.PHONY: build-kiln
build-kiln: check-go ## Build Kiln's own programs: seconds
	@scripts/go-build "Kiln's programs" . $(BIN)/ ./cmd/...

.PHONY: build-devcluster
build-devcluster: check-go ## Build the embedded cluster: minutes the first time, seconds from then on
	@LDFLAGS="$(KUBERNETES_LDFLAGS)" scripts/go-build bin/devcluster devcluster $(BIN)/devcluster ./cmd/devcluster
	@ln -sfn devcluster $(BIN)/kubectl

.PHONY: generate
generate: $(TOOLS)/controller-gen ## Write deepcopy functions and CRDs anew from the types and markers
	@CONTROLLER_GEN="$(CURDIR)/$<" scripts/generate

.PHONY: manifests
manifests: $(TOOLS)/kustomize ## Write all of config/default into one file, dist/kiln.yaml
	@mkdir -p dist
	@$< build config/default >dist/kiln.yaml
	@echo "dist/kiln.yaml is written."

.PHONY: clean
clean: dev-down ## Stop what runs and remove bin/ and dist/; Go's build cache stays
	@rm -rf bin dist

##@ Test

.PHONY: test
test: build $(TOOLS)/gotestsum ## Run the unit tests of every module, then the integration tests
	@scripts/test unit integration

.PHONY: test-unit
test-unit: check-go $(TOOLS)/gotestsum ## Run the unit tests only: no cluster is started
	@scripts/test unit

.PHONY: test-race
test-race: check-go $(TOOLS)/gotestsum ## Run the unit tests of the root module under the race detector (needs a C compiler)
	@command -v "$$(go env CC)" >/dev/null || { echo "The race detector needs a C compiler: apt-get install gcc" >&2; exit 1; }
	@CGO_ENABLED=1 GOFLAGS="$$GOFLAGS -race" MODULES=. scripts/test unit

##@ Check

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint ## Format all Go files
	@$(LINT) fmt $(LINT_CONFIG)

.PHONY: lint
lint: build $(TOOLS)/golangci-lint ## Run the linters over every module
	@failed=0; \
	for module in $(CODE); do \
	  echo "lint: module $$module"; \
	  (cd $$module && $(LINT) run $(LINT_CONFIG) ./...) || failed=1; \
	done; \
	if ((failed)); then echo "lint: mend what is named above; make fmt mends formatting" >&2; exit 1; fi

.PHONY: tidy
tidy: check-go ## Run `go mod tidy` in every module
	@for module in $(MODULES); do go -C $$module mod tidy; done

CHECKS := modules generated format manifests lint

.PHONY: verify
verify: check-go ## Check that go.mod, generated files, formatting, manifests and code are as they should be; changes nothing
	@failed=""; \
	for check in $(CHECKS); do $(MAKE) verify-$$check || failed+=" $$check"; done; \
	if [ -n "$$failed" ]; then echo "verify: failed:$$failed. Each says above how to mend it." >&2; exit 1; fi; \
	echo "verify: all is well"

.PHONY: verify-modules
verify-modules: check-go
	@scripts/verify-modules $(MODULES)

.PHONY: verify-generated
verify-generated: $(TOOLS)/controller-gen
	@CONTROLLER_GEN="$(CURDIR)/$<" scripts/verify-generated

.PHONY: verify-format
verify-format: $(TOOLS)/golangci-lint
	@$(LINT) fmt --diff $(LINT_CONFIG) || { echo "verify: Go files are not formatted as above. Mend with: make fmt" >&2; exit 1; }
	@echo "verify: Go files are formatted"

.PHONY: verify-manifests
verify-manifests: $(TOOLS)/kustomize
	@find config -name kustomization.yaml -printf '%h\n' 2>/dev/null | sort | while read -r dir; do \
	  $< build "$$dir" >/dev/null || { echo "verify: kustomize cannot build $$dir: mend what it says above" >&2; exit 1; }; \
	done
	@echo "verify: every kustomization under config/ builds"

.PHONY: verify-lint
verify-lint: lint
	@echo "verify: the linters have nothing to say"

# What the targets above need.

.PHONY: check-go
check-go:
	@scripts/check-go

$(TOOLS)/controller-gen: PACKAGE := sigs.k8s.io/controller-tools/cmd/controller-gen
$(TOOLS)/golangci-lint: PACKAGE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(TOOLS)/gotestsum: PACKAGE := gotest.tools/gotestsum
$(TOOLS)/kustomize: PACKAGE := sigs.k8s.io/kustomize/kustomize/v5

$(TOOLS)/%: tools/go.mod tools/go.sum | check-go
	@scripts/go-build $@ tools $@ $(PACKAGE)
	@touch $@

.PHONY: help
help: ## Print this help
	@awk 'BEGIN {FS = ":.*## "; print "usage: make TARGET"} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
