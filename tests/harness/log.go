package harness

import (
	"bufio"
	"io"
	"os"
	"strings"
)

// LogTail returns the last lines of the daemon's log, which includes its
// shims', for failure reports.
func (d *Daemon) LogTail(lines int) string { return d.LogSince(0, lines) }

// LogSize returns the log's current size in bytes.
func (d *Daemon) LogSize() int64 {
	info, err := os.Stat(d.LogPath)
	if err != nil {
		return 0
	}
	return info.Size()
}

// LogSince returns the last lines of what was logged after offset bytes.
func (d *Daemon) LogSince(offset int64, lines int) string {
	f, err := os.Open(d.LogPath)
	if err != nil {
		return "no log: " + err.Error()
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return "no log: " + err.Error()
	}
	var ring []string
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if len(ring) == lines {
			ring = ring[1:]
		}
		ring = append(ring, scanner.Text())
	}
	return d.LogPath + ":\n" + strings.Join(ring, "\n")
}
