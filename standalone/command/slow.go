package command

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// patience is how long an operation may take before it says that it runs.
const patience = 2 * time.Second

// saySlow writes a line if done is not called in time. On a terminal done removes
// it.
func saySlow(to io.Writer, in time.Duration, line string) (done func()) {
	terminal := IsTerminal(to)
	var mu sync.Mutex // guards the two
	said, ended := false, false
	timer := time.AfterFunc(in, func() {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return
		}
		said = true
		if !terminal {
			line += "\n"
		}
		fmt.Fprint(to, line)
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		ended = true
		if said && terminal {
			fmt.Fprint(to, "\r\x1b[K")
		}
	}
}
