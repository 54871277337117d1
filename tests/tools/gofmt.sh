#!/bin/bash
# Fails when a Go file is not formatted, and names it.
set -euo pipefail
cd "$(dirname "$0")/../.."
bad=$(git ls-files '*.go' | xargs -r gofmt -l)
if [ -n "$bad" ]; then
	printf 'not formatted (run gofmt -w on them):\n%s\n' "$bad" >&2
	exit 1
fi
echo "gofmt: all files are formatted"
