package container

import (
	"fmt"
	"os"
	"time"
)

// libcontainer answers a start a moment before the init calls execve(2). Until
// then it is a Go program, to which a SIGTERM that the container's own would
// not even notice is the end. So Start waits until another program runs.
const (
	execPoll = time.Millisecond
	execWait = 5 * time.Second
)

// program is what the init executes.
type program struct {
	path string // a link to it (proc(5), /proc/PID/exe)
	file os.FileInfo
	pid  int
}

func programOf(pid int) (program, error) {
	path := fmt.Sprintf("/proc/%d/exe", pid)
	file, err := os.Stat(path)
	return program{path, file, pid}, err
}

// awaitOther waits until the process executes another file, or has ended: then
// it executes none. One that does neither keeps nobody waiting for ever.
func (p program) awaitOther() {
	for deadline := time.Now().Add(execWait); time.Now().Before(deadline); time.Sleep(execPoll) {
		now, err := os.Stat(p.path)
		if err != nil || !os.SameFile(p.file, now) {
			return
		}
	}
}
