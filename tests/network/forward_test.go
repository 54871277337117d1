package network

import "testing"

// CRI's port-forward connects to the pod's loopback, in its namespace. It
// reaches servers that listen only there; without a listener the connection is
// refused or closed immediately.
func TestLoopbackIsReachedFromTheNamespace(t *testing.T) {
	ctx, d := begin(t)
	ns := newNetns(t, d)
	newBridge(t, d, 0).join(t, ns, "eth0")
	serving(ctx, t, barePod(ctx, t, d, ns), "tcp://127.0.0.1:7001", "tcp://[::1]:7001", "tcp://127.0.0.1:7002")
	ns.checks(t,
		"tcp://127.0.0.1:7001?bytes=1048576", "tcp://[::1]:7001?bytes=1048576", "tcp://127.0.0.1:7002?bytes=1",
		"closed://[::1]:7002", "closed://127.0.0.1:7003", "closed://[::1]:7003",
		"tcp://127.0.0.1:7001?bytes=1",
	)
}

// A server that resets a connection cuts its answer: the client must not take that for the
// answer's end. So does a client with its request.
func TestResetsPassThePortForward(t *testing.T) {
	ctx, d := begin(t)
	ns := newNetns(t, d)
	newBridge(t, d, 0).join(t, ns, "eth0")
	serving(ctx, t, barePod(ctx, t, d, ns), "reset://127.0.0.1:7001", "tcp://127.0.0.1:7002")
	ns.checks(t, "tcp://127.0.0.1:7002?bytes=1048576", "reset://127.0.0.1:7001", "tcp://127.0.0.1:7002?bytes=1048576")
}
