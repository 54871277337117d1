package container

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
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

// log is a container's log while it is written. A nil log discards everything. What
// cannot be written is lost, and the log says how much once it can be written again.
type log struct {
	dir string
	max int64
	// failed has the first error, until it is taken.
	failed chan error

	mu   sync.Mutex // guards what follows
	file *os.File
	size int64
	// rest is the end of a line of which only the beginning could be written.
	rest []byte
	// lost is how many bytes of lines were lost since the last that was written.
	lost int
	// broken is set after the first error.
	broken bool
}

func openLog(dir string) (*log, error) {
	l := &log{dir: dir, max: maxLog, failed: make(chan error, 1)}
	var err error
	if l.file, err = l.create(); err != nil {
		return nil, fmt.Errorf("open container's log: %w", err)
	}
	return l, nil
}

// create makes an empty file.
func (l *log) create() (*os.File, error) {
	return os.OpenFile(filepath.Join(l.dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// failure returns the channel on which the first error is sent.
func (l *log) failure() <-chan error {
	if l == nil {
		return nil
	}
	return l.failed
}

// write logs output of one stream. An error must not stop the container: failure
// has it, or else close returns it.
func (l *log) write(stream string, data []byte) {
	if l == nil || len(data) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.put(logLines(stream, data)); err != nil && !l.broken {
		l.broken = true
		l.failed <- fmt.Errorf("write container's log: %w: output is not logged until it can be written again", err)
	}
}

// logLines returns the log's lines for output.
func logLines(stream string, data []byte) []byte {
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
	return lines.Bytes()
}

// put writes lines, after what earlier errors have left to write.
func (l *log) put(lines []byte) error {
	if err := l.makeReady(); err != nil {
		l.lost += len(lines)
		return err
	}
	text := lines
	if l.lost > 0 {
		text = append(logLines(stderrName, fmt.Appendf(nil, "%d bytes of the log were lost\n", l.lost)), lines...)
	}
	n, err := l.file.Write(text)
	l.size += int64(n)
	if n == 0 {
		l.lost += len(lines)
		return err
	}
	// A line that was begun is completed later: a reader may have its beginning.
	end := n
	if text[n-1] != '\n' {
		end += bytes.IndexByte(text[n:], '\n') + 1
	}
	l.rest, l.lost = bytes.Clone(text[n:end]), len(text)-end
	return err
}

// makeReady completes the last line, and starts a new file if it is time.
func (l *log) makeReady() error {
	if len(l.rest) > 0 {
		n, err := l.file.Write(l.rest)
		l.size, l.rest = l.size+int64(n), l.rest[n:]
		if err != nil {
			return err
		}
	}
	if l.size > l.max {
		return l.rotate()
	}
	return nil
}

// rotate renames the file to the older one. If it fails it may be called again.
func (l *log) rotate() error {
	err := os.Rename(filepath.Join(l.dir, logFile), filepath.Join(l.dir, oldLogFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // an earlier call has renamed it
		return err
	}
	next, err := l.create()
	if err != nil {
		return err
	}
	err = l.file.Close()
	l.file, l.size = next, 0
	return err
}

// close returns the first error unless it was taken, and says what was lost at the end.
func (l *log) close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	select {
	case err := <-l.failed:
		errs = append(errs, err)
	default:
	}
	if lost := len(l.rest) + l.lost; lost > 0 {
		errs = append(errs, fmt.Errorf("write container's log: its last %d bytes were lost", lost))
	}
	if err := l.file.Close(); err != nil {
		errs = append(errs, fmt.Errorf("write container's log: %w", err))
	}
	return errors.Join(errs...)
}
