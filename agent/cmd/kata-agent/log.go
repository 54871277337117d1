package main

import (
	"bytes"
	"io"
	"os"

	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/logs"
)

// logTo sends the log to the ring and, until the host reads it there, what is
// grave to the console.
func logTo(ring *logs.Ring) {
	logger := log.L.Logger
	_ = log.SetFormat(log.JSONFormat)
	logger.SetOutput(quiet{ring})
	logger.AddHook(&logs.Console{W: os.Stderr, Ring: ring})
}

// quiet leaves out what libcontainer says whenever it saves the state of a
// container with a hook of ours: that it cannot save the hook. Nothing reads
// that state when the agent has ended: the guest ends with it.
type quiet struct{ io.Writer }

// saysSo begins the message in a line of the log; a quotation mark inside of a
// message is not written so.
var saysSo = []byte(`"msg":"cannot serialize hook of type `)

// Write implements io.Writer; it is called once for each line.
func (q quiet) Write(line []byte) (int, error) {
	if bytes.Contains(line, saysSo) {
		return len(line), nil
	}
	return q.Writer.Write(line)
}
