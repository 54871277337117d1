package main

import (
	"bytes"
	"io"
	"os"

	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/logs"
)

// logTo sends the log to the ring and, until the host reads that, warnings and
// errors to the console.
func logTo(ring *logs.Ring) {
	logger := log.L.Logger
	_ = log.SetFormat(log.JSONFormat)
	logger.SetOutput(quiet{ring})
	logger.AddHook(&logs.Console{W: os.Stderr, Ring: ring})
}

// quiet drops libcontainer's warning, each time it saves the state of a
// container with one of our hooks, that it cannot save the hook. That state is
// never read: the guest ends with the agent.
type quiet struct{ io.Writer }

// saysSo begins the message in a line of the log; quotation marks within a
// message are escaped.
var saysSo = []byte(`"msg":"cannot serialize hook of type `)

// Write implements io.Writer; it is called once for each line.
func (q quiet) Write(line []byte) (int, error) {
	if bytes.Contains(line, saysSo) {
		return len(line), nil
	}
	return q.Writer.Write(line)
}
