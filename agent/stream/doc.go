// Package stream joins the stdio of guest processes to the connections that
// carry it to the host.
//
// A Stdio owns the agent's ends of one process's stdio: pipes, or a terminal.
// It is made before the process, so that the host can first bind a connection
// to each stream; Server accepts those connections. Each stream is in one of
// these states (binding.go) until Stdio is closed:
//
//	          Reserve             Attach           Park
//	unbound ──────────> reserved ───────> bound ──────────> parking
//	 ^  ^                │ ^  ^            │ │                │ │
//	 │  └───── Park ─────┘ │  │            │ │  end of file   │ │
//	 │                     │  └─ Reserve ──┼─┴──> ended <─────┘ │
//	 │                     │               │                    │
//	 │                     │               │ a terminal's       │
//	 │                     │               v reader is lost     │
//	 │                     └─ Reserve ── dropping               │
//	 └───────────── the copying has stopped ────────────────────┘
//
// Little is buffered: a process whose output the host does not read blocks, as on
// any pipe. When the host's connection is lost, a process that writes gets SIGPIPE;
// a terminal's output is discarded instead.
//
// Park ends the connections and loses nothing. Of an output, at most the one block
// that was being sent is kept; the rest waits in the process's pipe. Of an input,
// what was under way is kept, up to maxKept: a goroutine gives it to the process
// whether or not there is a connection. Until Park, and once that is done, the
// reader of the connection writes to the process itself.
//
// A Park that fails parks some streams, or none, and the host gives up all
// connections. So a stream that is bound or parking is reserved, too, if Park was
// called since it was reserved last: Reserve then does what Park does, and waits no
// longer than for what has arrived.
package stream
