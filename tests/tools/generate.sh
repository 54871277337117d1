#!/bin/bash
# Generates the Go code of agent/api/guest.proto with pinned generators.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools=$PWD/build/tools
version_of() { ${GO:-go} list -m -f '{{.Version}}' "$1"; }
command -v protoc >/dev/null || { echo "generate: protoc is not there: apt-get install protobuf-compiler" >&2; exit 1; }
mkdir -p "$tools"
GOBIN=$tools ${GO:-go} install "google.golang.org/protobuf/cmd/protoc-gen-go@$(version_of google.golang.org/protobuf)"
GOBIN=$tools ${GO:-go} install "github.com/containerd/ttrpc/cmd/protoc-gen-go-ttrpc@$(version_of github.com/containerd/ttrpc)"
PATH=$tools:$PATH protoc -I agent/api --go_out=agent/api --go_opt=paths=source_relative \
	--go-ttrpc_out=agent/api --go-ttrpc_opt=paths=source_relative agent/api/guest.proto
git diff --stat -- agent/api
