// Package stream joins the stdio of guest processes to the connections that
// carry it to the host.
//
// A Stdio owns the agent's ends of one process's stdio: pipes, or a terminal.
// It is made before the process, so that the host can first bind a connection
// to each stream; Server accepts those connections.
//
//	New ──Bind(stream)×n──> bound ──(SetConsole)──> flowing ──end of file──> ended
//	  └────────────────────────────── Close ───────────────────────────────────┘
//
// Nothing is buffered beyond one block per stream: a process whose output the
// host does not read blocks, as on any pipe. When the host's connection is
// lost, output is discarded instead, so that the process is not killed by it.
package stream
