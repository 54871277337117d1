// Package fakeguest is a guest in memory, for tests: a Host with the machines of
// hypervisor/fake, and an Agent in each of them that speaks the real protocol
// (agent/api, containerd's task API over ttrpc, stdio streams, the log) on
// socket pairs.
//
// Its containers run nothing. A process lives until the test (Agent.Exit) or a
// signal ends it. The test can make each call fail, hang or run a hook
// (Agent.Fail, Agent.Hang, Agent.Hook), send any event (Agent.Send), and close
// connections. As with a real machine, the connections end when the machine does.
// The real file server serves the share, but no machine mounts it. The Agent
// answers as the real one does (agent/api/apitest).
//
// Only the tests of virtcontainers and of the shim may import it.
package fakeguest
