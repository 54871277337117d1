package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// envCommand is in the environment of a command and of all processes that it
// starts. Shims and machines have their own sessions: they do not end with a test
// program that panics or is killed.
const envCommand = "KATABOX_SUITES_COMMAND"

// killLeftovers kills what a command has left, so that it takes no CPU time
// from the next one. It searches until nothing is found, a few times at most: a
// process may have started another before it was killed.
func killLeftovers(word string) (killed int) {
	for range 20 {
		left := withEnv(envCommand + "=" + word)
		if len(left) == 0 {
			return killed
		}
		for _, pid := range left {
			if unix.Kill(pid, unix.SIGKILL) == nil {
				killed++
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return killed
}

// withEnv returns the processes that started with this assignment in their
// environment. A process that has exited has none, even if it is not reaped
// yet.
func withEnv(assignment string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // fails for bad patterns only
	var pids []int
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(append([]byte{0}, env...), append([]byte{0}, assignment+"\x00"...)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
