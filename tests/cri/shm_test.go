package cri

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// suiteSegment is the size of the segments that the suite makes on the host, by
// "ipcmk -M 1048576", and leaves (cri-tools, pkg/validate/security_context_linux.go).
const suiteSegment = "1048576"

// sharedMemory lists the ids of the host's System V segments of that size
// (sysvipc(7): key, shmid, perms, size).
func sharedMemory(t *testing.T) map[int]bool {
	t.Helper()
	data, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[3] != suiteSegment {
			continue
		}
		if id, err := strconv.Atoi(fields[1]); err == nil {
			ids[id] = true
		}
	}
	return ids
}

// removeSharedMemory removes segments that are not in before.
func removeSharedMemory(t *testing.T, before map[int]bool) {
	t.Helper()
	for id := range sharedMemory(t) {
		if before[id] {
			continue
		}
		if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
			t.Errorf("remove shared memory segment %d: %v", id, err)
		}
	}
}
