//go:build cgo

package inside

// The C half joins the container's namespaces before Go starts any thread.
import _ "github.com/opencontainers/runc/libcontainer/nsenter"
