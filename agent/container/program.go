package container

import (
	"fmt"
	"os"
	"time"
)

// libcontainer answers a start just before the init calls execve(2). Until then
// the init is a Go program, and a SIGTERM that the container's program would
// ignore ends it. So Start waits until the init runs another program.
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
// it executes none. The wait is bounded by execWait.
func (p program) awaitOther() {
	for deadline := time.Now().Add(execWait); time.Now().Before(deadline); time.Sleep(execPoll) {
		now, err := os.Stat(p.path)
		if err != nil || !os.SameFile(p.file, now) {
			return
		}
	}
}
