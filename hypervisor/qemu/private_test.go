package qemu

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

// clonesEnv is how many machines TestPrivateMemoryIsShared starts of each
// kind, 2 unless told.
const clonesEnv = "KATABOX_TEST_CLONES"

// Machines with private memory need only what they change of the template's;
// those with a copy all of it.
func TestPrivateMemoryIsShared(t *testing.T) {
	n := int64(2)
	if v, err := strconv.ParseInt(os.Getenv(clonesEnv), 10, 64); err == nil {
		n = v
	}
	spec := guestSpec(t)
	dir := saveTemplate(t, spec)
	sealed := openTemplate(t, dir)
	seal(t, sealed)
	if err := sealed.Filled(); err != nil {
		t.Fatal(err)
	}
	cost := map[string]int64{}
	for _, kind := range []string{"copied", "private"} {
		var vms []hypervisor.VM
		for i := range n {
			spec.ID, spec.Template = fmt.Sprint(kind, i), openTemplate(t, dir)
			if kind == "private" {
				spec.Template.Sealed = sealed.Sealed
			}
			vm := launch(t, spec)
			guest := vsockTo(t, vm)
			if err := vm.Resume(testContext(t)); err != nil {
				t.Fatal(err)
			}
			guest.echo(t)
			vms = append(vms, vm)
		}
		var pss, dirty, files int64
		seen := map[uint64]bool{}
		for _, vm := range vms {
			p, d := rollup(t, vm.PID())
			pss, dirty, files = pss+p, dirty+d, files+memoryFiles(t, vm.PID(), seen)
		}
		cost[kind] = files
		t.Logf("%s, %d machines, MB each: PSS %d, private and changed %d, files of memory %d", kind, n, pss/n>>10, dirty/n>>10, files/n>>10)
	}
	if n > 1 && cost["private"]*3/2 > cost["copied"] {
		t.Errorf("files of memory: %d KiB if private, %d KiB if copied", cost["private"], cost["copied"])
	}
}

// memoryFiles returns what a process's memfds take, in KiB, if they have not
// been seen.
func memoryFiles(t *testing.T, pid int, seen map[uint64]bool) (kib int64) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		var st unix.Stat_t
		name, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(name, "/memfd:") || unix.Stat(fd, &st) != nil || seen[st.Ino] {
			continue
		}
		seen[st.Ino] = true
		kib += st.Blocks / 2
	}
	return kib
}

// checkUnwritten checks that a machine has mapped the file that is to be its memory,
// and has written to none of its pages: they would not get the file's content.
func checkUnwritten(t *testing.T, file *os.File) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*/smaps")
	if err != nil {
		t.Fatal(err)
	}
	mappings, written := 0, 0
	for _, path := range all {
		text, _ := os.ReadFile(path) // an ended process has none
		ours := false
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if strings.Contains(fields[0], "-") { // a mapping's first line (proc(5))
				if ours = fields[4] == fmt.Sprint(st.Ino) && strings.Contains(line, "/memfd:"); ours {
					mappings++
				}
			}
			kib := 0
			if _, err := fmt.Sscanf(line, "Anonymous: %d kB", &kib); ours && err == nil {
				written += kib
			}
		}
	}
	if mappings == 0 || written != 0 {
		t.Errorf("the memory is mapped %d times, and %d KiB of it are written before it has its content", mappings, written)
	}
}

// rollup returns a process's PSS and its private, changed pages, in KiB.
func rollup(t *testing.T, pid int) (pss, dirty int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "Pss: %d kB", &pss)
		_, _ = fmt.Sscanf(line, "Private_Dirty: %d kB", &dirty)
	}
	return pss, dirty
}
