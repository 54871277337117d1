package harness

import (
	"bufio"
	"os"
	"strings"
)

// LogTail returns the last lines of the daemon's log, which holds its shims'
// too, for a failure's report.
func (d *Daemon) LogTail(lines int) string {
	f, err := os.Open(d.LogPath)
	if err != nil {
		return "no log: " + err.Error()
	}
	defer func() { _ = f.Close() }()
	ring := make([]string, 0, lines)
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
