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
// An output may come in frames (frame.go): then large blocks go by a file of the host's.
//
// While output is gathered or relayed, no write of the process wakes the agent's
// scheduler (watched.go).
//
// Little is buffered: a process whose output the host does not read blocks, as on
// any pipe. When the host's connection is lost, a process that writes gets SIGPIPE;
// a terminal's output is discarded instead.
//
// Park ends the connections without loss. Of an output it keeps at most the block
// that was being sent; the rest waits in the process's pipe. Of an input it keeps
// the bytes in flight, up to maxKept, and a goroutine writes them to the process
// with or without a connection. Before Park, and once these are written, the
// connection's reader writes to the process itself.
//
// A Park that fails parks only some streams, and the host then drops all
// connections. So Reserve accepts a stream that is bound or parking, if Park was
// called since it was last reserved. It then does the work of Park, and waits only
// until the bytes that have arrived are written.
package stream
