// Package fakeguest is a guest without a guest, for the tests of everything
// above: a Host whose machines are those of hypervisor/fake, and an Agent in
// memory behind them that speaks the real protocol (agent/api, containerd's
// task API over ttrpc, stdio streams, the log) on socket pairs.
//
// Its containers run nothing. A process lives until the test ends it
// (Agent.Exit) or a signal does, and the test can make each call fail, hang
// or take a detour (Agent.Fail, Agent.Hang, Agent.Hook), send any event
// (Agent.Send), and end connections. As with a real machine, the connections
// end when the machine does. The share is served by the real file server, but no
// machine mounts it. The Agent answers as the real one does (agent/api/apitest).
//
// Package virtcontainers' tests, and those of the shim, share it; no other
// code may import it.
package fakeguest
