//go:build cgo

package main

// The C half of nsenter joins a container's namespaces before Go starts.
import _ "github.com/opencontainers/runc/libcontainer/nsenter"
