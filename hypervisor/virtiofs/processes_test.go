package virtiofs

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/contain"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
	"github.com/katabox/katabox/internal/ownthread"
)

// otherUser is a user of TestHostProcesses.
const otherUser = 65534

// startSleep starts a process of a user, until the test's end.
func startSleep(t *testing.T, uid uint32) (pid int) {
	t.Helper()
	cmd := exec.Command("sleep", "3600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	cmd.Env = []string{"SECRET=1"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// A guest with the host's /proc in its share reads what any user may read of a process,
// but neither its memory nor its environment, whatever user it claims to be.
func TestHostProcesses(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to become another user needs root")
	}
	pid := strconv.Itoa(startSleep(t, otherUser))
	c := newClient(t, "/proc")
	process := c.mustLookup(1, pid).NodeId
	thread := c.mustLookup(c.mustLookup(process, "task").NodeId, pid).NodeId
	c.uid, c.gid = otherUser, otherUser
	if errno, _ := call(c, wire.Readlink, c.mustLookup(process, "exe").NodeId, &fuse.InHeader{}); errno != unix.EACCES {
		t.Errorf("read the program's link: %v, want EACCES", errno)
	}
	for _, dir := range []uint64{process, thread} {
		for file, want := range map[string]unix.Errno{
			"mem": unix.EACCES, "environ": unix.EACCES, "maps": unix.EACCES, "auxv": unix.EACCES,
			"status": 0, "cmdline": 0, "oom_score_adj": 0,
		} {
			node := c.mustLookup(dir, file).NodeId
			for _, uid := range []uint32{0, otherUser} {
				for _, how := range []fuse.OpenIn{{}, {Mode: fuse.OPEN_KILL_SUIDGID}, {Mode: fuse.OPEN_KILL_SUIDGID, Flags: unix.O_RDWR}} {
					if how.Flags != 0 && file != "mem" {
						continue
					}
					c.uid, c.gid = uid, uid
					if errno, _ := call(c, wire.Open, node, &how); errno != want {
						t.Errorf("%s as user %d with flags %#x and %#x: %v, want %v", file, uid, how.Flags, how.Mode, errno, want)
					}
				}
			}
		}
	}
}

// The rules of a proc file system are those of what is read, not of the node that the
// guest names with it.
func TestHostProcessesByOtherNodes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to become another user needs root")
	}
	pid := strconv.Itoa(startSleep(t, otherUser))
	c := newClient(t, "/")
	maps := c.mustLookup(c.mustLookup(c.mustLookup(1, "proc").NodeId, pid).NodeId, "map_files").NodeId
	dir := ask[fuse.OpenOut](c, wire.Opendir, maps, &fuse.OpenIn{})
	c.uid, c.gid = otherUser, otherUser
	for _, node := range []uint64{maps, 1} {
		for _, offset := range []uint64{0, 2} {
			errno, reply := call(c, wire.Readdir, node, &fuse.ReadIn{Fh: dir.Fh, Offset: offset, Size: 4096})
			if offset > 0 && errno != unix.EACCES || len(reply) > 100 {
				t.Errorf("list the mappings with node %d from offset %d: %v, %d bytes", node, offset, errno, len(reply))
			}
		}
	}
}

// What a guest reads of root's processes that have no more capabilities than the thread
// that serves it: what a process without capabilities may read, and never memory.
func TestHostProcessesOfRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to be root needs root")
	}
	c := newClient(t, "/proc")
	for _, tc := range []struct {
		file    string
		process uint64 // capabilities
		want    unix.Errno
	}{
		{"mem", 0, unix.EACCES},
		{"mem", contain.Capabilities, unix.EACCES},
		{"environ", 0, 0},
		{"environ", contain.Capabilities, unix.EACCES},
		{"syscall", contain.Capabilities, unix.EPERM},
		{"io", contain.Capabilities, unix.EACCES},
		{"stat", contain.Capabilities, 0},
	} {
		pid := make(chan int)
		ownthread.Go(func() { pid <- sleepWith(t, tc.process) })
		process := c.mustLookup(1, strconv.Itoa(<-pid)).NodeId
		errno, reply := call(c, wire.Open, c.mustLookup(process, tc.file).NodeId, &fuse.OpenIn{})
		if errno == 0 {
			out := (*fuse.OpenOut)(ptr(reply))
			errno, _ = call(c, wire.Read, 0, &fuse.ReadIn{Fh: out.Fh, Size: 4096})
		}
		if errno != tc.want {
			t.Errorf("%s of a process with capabilities %#x: %v, want %v", tc.file, tc.process, errno, tc.want)
		}
	}
}

// sleepWith starts a process of root with the given capabilities. The calling thread has
// no others in its bounding set from then on. It returns 0 if that fails.
func sleepWith(t *testing.T, capabilities uint64) (pid int) {
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if capabilities>>c&1 == 0 {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
				t.Error(err)
				return 0
			}
		}
	}
	cmd := exec.Command("sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return 0
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}
