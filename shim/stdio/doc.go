// Package stdio carries a process's standard streams between an engine's ends
// and the guest's streams. An engine's end is a FIFO, and for output also a
// file (file://) or a logger program (binary://, binary-v2://).
//
// Each FIFO is opened once and kept until all output has ended: engines unlink
// them after Start and treat the first end of file as the last (iSulad). Output
// FIFOs are opened for reading, too, so that a reader may disconnect and
// reconnect. stdout and stderr are closed together, when what is in them has a
// reader or the process is deleted (unread.go).
//
// A guest's stream may continue on another connection, because connections end
// when a machine is saved. Between Park and Rebind no byte is lost or passed
// twice.
//
// "Drained before exit" is implemented here: Drain waits until everything that
// the process had written when it ended was passed on. It waits neither for the
// end of the stream, which another process may hold open, nor for a reader that
// does not read.
package stdio
