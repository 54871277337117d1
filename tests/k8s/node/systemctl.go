package node

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The stand-in for systemctl, which also works in a container that has the
// node's root, asks this process by FIFOs.
const systemctl = `#!/bin/sh
[ "$1 $2" = "try-restart containerd.service" ] || { echo "systemctl: unknown: $*" >&2; exit 1; }
echo "$2" >%[1]s/request && read -r answer <%[1]s/answer && [ "$answer" = ok ]
`

var requestPath, answerPath = filepath.Join(Dir, "request"), filepath.Join(Dir, "answer")

// makeSystemctl makes the node look like one with systemd.
func makeSystemctl() error {
	for _, path := range []string{requestPath, answerPath} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			return fmt.Errorf("make FIFO %s: %w", path, err)
		}
	}
	if err := os.MkdirAll("/run/systemd/system", 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(programsDir, "systemctl"), fmt.Appendf(nil, systemctl, Dir), 0o755)
}

// serveSystemctl restarts containerd for each request, until this process ends.
func (n *Node) serveSystemctl() {
	// Open for both directions, so that neither open nor read ends without a
	// writer (fifo(7)).
	requests, err := os.OpenFile(requestPath, os.O_RDWR, 0)
	if err != nil {
		return
	}
	answers, err := os.OpenFile(answerPath, os.O_RDWR, 0)
	if err != nil {
		return
	}
	lines := bufio.NewScanner(requests)
	for lines.Scan() {
		answer := "ok"
		if err := n.Restart(context.Background(), Containerd); err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		_, _ = fmt.Fprintln(answers, answer)
	}
}
