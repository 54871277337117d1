#!/bin/bash
# Runs golangci-lint, built once from the Go module proxy into build/tools.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=v2.5.0
tool=$PWD/build/tools/golangci-lint-$version
if [ ! -x "$tool" ]; then
	echo "lint: building golangci-lint $version"
	mkdir -p build/tools
	GOBIN=$PWD/build/tools ${GO:-go} install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
	mv build/tools/golangci-lint "$tool"
fi
exec "$tool" run "$@" ./...
