# Katabox. "make" alone lists the targets; README.md says where to begin.

GO      ?= go
PREFIX  ?= /usr/local
DATADIR ?= /usr/share
DESTDIR ?=
FUZZTIME ?= 2s
FUZZHOUR ?= 1h
IPTABLES ?= /usr/sbin/iptables
ONLY    ?=
VERSION := $(shell deploy/version.sh)

GUEST = build/guest/vmlinux build/guest/initrd.img
RUNTIME_DEFAULTS = $(DATADIR)/defaults/kata-containers
GUEST_DIR = $(DATADIR)/kata-containers

# tests/tools/deps.sh may unpack a static busybox there.
export PATH := $(CURDIR)/build/packages/bin:$(PATH):/usr/local/go/bin

.DEFAULT_GOAL := help
.PHONY: help deps build shim agent guest-image guest-image-debug guest-image-iptables guest-image-modules containerd critools engines qemu test-engines test-engines-debian test-engines-trixie test-crio k8s test-k8s conformance clientsuite test-client test-distro runner test test-all suites test-kvm test-kvm-smoke \
	test-cri critest cri-shell demo demo-virtiofsd unit fuzz fuzz-guest integration vet fmt lint bench generate install uninstall stage deb image test-deb test-soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-21s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install the missing Debian packages that building and testing need
	@tests/tools/deps.sh

build: shim agent ## build bin/containerd-shim-kata-v2, bin/kata-runtime and bin/kata-agent

# no_grpc leaves out containerd's gRPC clients and servers, which nothing here
# uses, and with them HTTP and TLS: a third of each program.
shim:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags no_grpc -ldflags "-s -w -X main.version=$(VERSION)" -o bin/ \
		./shim/cmd/containerd-shim-kata-v2 ./shim/cmd/kata-runtime

# Static, because the guest has no shared libraries. The version names no commit,
# so that the same source gives the same bytes and the same image.
agent:
	CGO_ENABLED=1 $(GO) build -trimpath -buildvcs=false -tags "netgo osusergo seccomp no_grpc" \
		-ldflags "-s -w -buildid= -extldflags -static -X github.com/katabox/katabox/agent/service.Version=$(shell cat VERSION)" \
		-o bin/ ./agent/cmd/kata-agent

guest-image: agent ## build the guest's kernel and initramfs into build/guest
	$(GO) run ./guest-image

guest-image-debug: agent ## the same with a shell and tools, into build/guest-debug (see docs/observability.md)
	$(GO) run ./guest-image -busybox "$$(command -v busybox)" -out build/guest-debug

guest-image-iptables: agent ## the same with iptables of this host, into build/guest-iptables (IPTABLES=/usr/sbin/iptables-legacy for the old kind)
	$(GO) run ./guest-image -iptables $(IPTABLES) -out build/guest-iptables

guest-image-modules: agent ## the same with more kernel modules, into build/guest-modules (MODULES="nfs nfsv3 nfsv4 sctp", for example)
	$(GO) run ./guest-image $(addprefix -module ,$(MODULES)) -out build/guest-modules

containerd: ## build the containerd 2.x that the suites run with
	@tests/tools/containerd.sh

critools: ## build crictl, critest and the runc that tests/cri compares with
	@tests/tools/critools.sh

engines: ## get nerdctl, Docker and Podman for tests/engines
	@tests/tools/engines.sh

qemu: ## get a QEMU that can save a machine into build/qemu, if the installed one cannot
	@tests/tools/qemu.sh

demo: deps build guest-image ## run a pod under a private containerd and show each step
	$(GO) run ./tests/demo

demo-virtiofsd: deps build guest-image ## the same with this Debian's virtiofsd in place of the shim's file server, after tests of that virtiofsd
	tests/tools/virtiofsd.sh
	$(GO) test -count=1 -run Daemon ./virtcontainers/guestfs/storage
	$(GO) run ./tests/demo -virtiofsd "$$(tests/tools/virtiofsd.sh)"

# tests/tools/suites/table.go has the suites of each tier.
runner:
	@$(GO) build -buildvcs=false -o build/suites ./tests/tools/suites

test: deps runner ## the quick tier: unit tests, and part of each kind of suite (ONLY=suite,... to run only these)
	@build/suites -tier quick -only "$(ONLY)"

test-all: deps runner ## everything, as CI runs it (ONLY=suite,... to run only these)
	@build/suites -tier all -only "$(ONLY)"

suites: runner ## list the suites of "make test-all"
	@build/suites -tier all -list

fmt:
	@tests/tools/gofmt.sh

vet:
	$(GO) vet ./...

unit: deps runner ## unit tests, with the race detector
	@build/suites -tier all -only units,units-boot

fuzz: ## every fuzz target for FUZZTIME
	$(GO) run ./tests/tools/fuzz -time $(FUZZTIME)

fuzz-guest: ## an hour for each target that docs/threat-model.md names, two at a time (FUZZHOUR)
	$(GO) run ./tests/tools/fuzz -time $(FUZZHOUR) -at-once 2 -named docs/threat-model.md

integration: deps runner ## the suites against real engines
	@build/suites -tier all -only containerd-2.4,containerd-1.6,containerd-crowd,isulad,chaos,network,cri

test-cri: deps build guest-image containerd critools ## CRI: the conformance suite with runc and kata, and crictl
	$(GO) test -count=1 -timeout 70m -v ./tests/cri

critest: deps build guest-image containerd critools ## only the conformance suite, whole with runc too, with progress lines
	KATABOX_TEST_CRI_WHOLE=1 $(GO) test -count=1 -timeout 70m -v -run TestCritest ./tests/cri

cri-shell: build guest-image containerd critools ## a private containerd with CRI, for manual work
	$(GO) run ./tests/cri/cmd/crienv

test-distro: deps ## "make demo demo-virtiofsd" on a bare Debian 13, made by debootstrap (RELEASE=..., COMMAND=... for another)
	$(GO) run ./tests/distro -release $(or $(RELEASE),trixie) -- $(or $(COMMAND),make --no-print-directory demo demo-virtiofsd)

test-engines: deps build guest-image containerd engines qemu ## every scene with nerdctl, Docker 28, Docker 20.10 and Podman
	$(GO) test -count=1 -timeout 120m -v ./tests/engines

test-engines-debian: deps build guest-image ## every scene with this Debian's own Docker and Podman
	@tests/tools/engines.sh debian
	$(GO) test -count=1 -timeout 120m -v -run '$(or $(SCENES),TestDocker20|TestCheckpointDocker20|TestPodman)' ./tests/engines

test-engines-trixie: deps ## the same with Debian 13's, in its root file system (SCENES='TestPodman/^(run|exec)$$' to run only these)
	$(GO) run ./tests/distro -timeout 150m -- make --no-print-directory test-engines-debian SCENES='$(SCENES)'

test-crio: deps build guest-image critools ## pods under a real CRI-O, through the shim and kata-runtime, compared with runc
	@tests/tools/engines.sh crio
	$(GO) test -count=1 -timeout 40m -v ./tests/crio

k8s: ## build Kubernetes' programs, and fetch etcd, into build/
	@tests/tools/k8s.sh

test-k8s: deps build guest-image containerd critools k8s ## a real Kubernetes of one node, installed by the installer: pods compared with runc (TESTS=regular expression to run only these)
	$(GO) test -count=1 -timeout 60m -v $(if $(TESTS),-run '$(TESTS)') ./tests/k8s

conformance: deps build guest-image containerd critools ## Kubernetes' own suite on that node, [NodeConformance], with runc and with Katabox: hours without KVM (FOCUS=regular expression of names to run only these)
	@tests/tools/k8s.sh conformance
	KATABOX_TEST_CONFORMANCE='$(or $(FOCUS),all)' $(GO) test -count=1 -timeout 8h -v -run 'TestNodeConformance|TestCompatPage' ./tests/k8s

clientsuite: ## build the test suite of containerd's client
	@tests/tools/clientsuite.sh

test-client: deps build guest-image containerd clientsuite qemu ## the test suite of containerd's client, with runc and kata
	$(GO) test -count=1 -timeout 60m -v ./tests/client

test-kvm: deps build guest-image containerd critools qemu ## selected suites on a KVM host with vhost and cgroup v2, itself under TCG
	$(GO) run ./tests/kvmhost

test-kvm-smoke: deps build guest-image containerd qemu ## one pod on that KVM host
	$(GO) run ./tests/kvmhost -smoke

lint: ## run golangci-lint, with the import rules
	@tests/tools/lint.sh

bench: build guest-image ## measure cold start, execs, volumes and network against runc; memory; the steps of a boot
	$(GO) run ./tests/bench

generate: ## generate the protobuf code of agent/api
	@tests/tools/generate.sh

install: build guest-image stage ## install below DESTDIR

# Installs what was built, and builds nothing. DESTDIR may have blanks.
stage: private share = $(DESTDIR)$(PREFIX)/share
stage: private script = bin/kata-runtime completion $(1) > "$(share)/$(2)" && chmod 644 "$(share)/$(2)"
stage:
	install -D -t "$(DESTDIR)$(PREFIX)/bin" bin/containerd-shim-kata-v2 bin/kata-runtime
	install -D -m 644 -t "$(DESTDIR)$(GUEST_DIR)" $(GUEST)
	install -D -m 644 configuration.toml "$(DESTDIR)$(RUNTIME_DEFAULTS)/configuration.toml"
	install -D -m 644 -t "$(share)/man/man8" docs/man/kata-runtime.8
	install -d "$(share)/bash-completion/completions" "$(share)/zsh/site-functions" "$(share)/fish/vendor_completions.d"
	$(call script,bash,bash-completion/completions/kata-runtime)
	$(call script,zsh,zsh/site-functions/_kata-runtime)
	$(call script,fish,fish/vendor_completions.d/kata-runtime.fish)

# Configuration in /etc, and what pods have left, stay.
uninstall: private share = $(DESTDIR)$(PREFIX)/share
uninstall: ## remove what "make install" has installed below DESTDIR
	@if [ -z "$(DESTDIR)" ] && ls /run/kata-containers/sandboxes/*/state.json >/dev/null 2>&1; then \
		echo "make uninstall: pods run, and only their shim can remove them: remove them first (kata-runtime pods)" >&2; exit 1; fi
	rm -f "$(DESTDIR)$(PREFIX)/bin/containerd-shim-kata-v2" "$(DESTDIR)$(PREFIX)/bin/kata-runtime" "$(share)/man/man8/kata-runtime.8" \
		"$(share)/bash-completion/completions/kata-runtime" "$(share)/zsh/site-functions/_kata-runtime" \
		"$(share)/fish/vendor_completions.d/kata-runtime.fish" "$(DESTDIR)$(RUNTIME_DEFAULTS)/configuration.toml" \
		"$(DESTDIR)$(GUEST_DIR)/vmlinux" "$(DESTDIR)$(GUEST_DIR)/initrd.img"
	for dir in "$(DESTDIR)$(GUEST_DIR)" "$(DESTDIR)$(RUNTIME_DEFAULTS)"; do [ ! -d "$$dir" ] || rmdir --ignore-fail-on-non-empty "$$dir"; done

deb: build guest-image ## build an installable Debian package, build/katabox_VERSION_ARCH.deb
	@deploy/deb.sh

image: build guest-image ## build the installer's container image, build/image and build/image.tar (no engine is needed)
	$(GO) run ./deploy/image -version $(VERSION)

test-soak: deps build guest-image containerd ## 1,000 pods one after the other, then 20 at once for an hour (KATABOX_SOAK_PODS, _AT_ONCE, _TIME)
	KATABOX_SOAK_PODS=$(or $(KATABOX_SOAK_PODS),1000) KATABOX_SOAK_AT_ONCE=$(or $(KATABOX_SOAK_AT_ONCE),20) \
	KATABOX_SOAK_TIME=$(or $(KATABOX_SOAK_TIME),1h) $(GO) test -count=1 -timeout 24h -v ./tests/soak

test-deb: deps ## build the package on a bare Debian 12 and on a bare 13, install it there and run a container
	$(GO) run ./tests/distro -release bookworm -- tests/tools/trydeb.sh
	$(GO) run ./tests/distro -release trixie -- tests/tools/trydeb.sh

clean: ## remove what was built
	rm -rf bin build
