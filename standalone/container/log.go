package container

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A container's output is in at most two files. Each line is a time, the stream's
// name, F for a whole line or P for a part of one, and the output: CRI's format
// for logs.
const (
	logFile    = "output.log"
	oldLogFile = "output.log.1"
)

// maxLog is the size at which a new file is started: the output of a command has
// no bound.
const maxLog = 16 << 20

// maxLogChunk is the length at which a line without an end is split into parts.
const maxLogChunk = 16 << 10

// log is a container's log while it is written. A nil log discards everything.
type log struct {
	dir string
	max int64

	mu   sync.Mutex // guards what follows
	file *os.File
	size int64
	err  error // the first; nothing is logged after it
}

func openLog(dir string) (*log, error) {
	l := &log{dir: dir, max: maxLog}
	if err := l.begin(); err != nil {
		return nil, err
	}
	return l, nil
}

// begin starts an empty file.
func (l *log) begin() (err error) {
	l.size = 0
	l.file, err = os.OpenFile(filepath.Join(l.dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("open container's log: %w", err)
	}
	return nil
}

// write logs output of one stream. An error must not stop the container: close
// returns it.
func (l *log) write(stream string, data []byte) {
	if l == nil || len(data) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	stamp := time.Now().UTC().Format(time.RFC3339Nano)
	var lines bytes.Buffer
	for len(data) > 0 {
		chunk, kind := data[:min(len(data), maxLogChunk)], "P"
		if end := bytes.IndexByte(chunk, '\n'); end >= 0 {
			chunk, kind = chunk[:end], "F"
			data = data[1:]
		}
		data = data[len(chunk):]
		fmt.Fprintf(&lines, "%s %s %s %s\n", stamp, stream, kind, chunk)
	}
	if l.size > l.max {
		l.err = l.rotate()
	}
	if l.err == nil {
		_, l.err = l.file.Write(lines.Bytes())
		l.size += int64(lines.Len())
	}
}

// rotate renames the file to the older one.
func (l *log) rotate() error {
	if err := l.file.Close(); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(l.dir, logFile), filepath.Join(l.dir, oldLogFile)); err != nil {
		return err
	}
	return l.begin()
}

func (l *log) close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.err, l.file.Close()); err != nil {
		return fmt.Errorf("write container's log: %w", err)
	}
	return nil
}
