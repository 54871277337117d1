//go:build cgo

package inside

import (
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // Its C half joins the container's namespaces before Go starts.
)
