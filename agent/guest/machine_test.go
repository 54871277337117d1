package guest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// fakeMachine is a Mounter on temporary directories, whose system calls are
// recorded.
type fakeMachine struct {
	*Mounter

	mu sync.Mutex
	// done records the mounts and unmounts.
	done []string
	// answers are the errors of coming calls, by call; other calls succeed.
	answers map[string][]error
	// held are the nodes that cannot be opened exclusively.
	held map[string]bool
}

func newMachine(t *testing.T) *fakeMachine {
	t.Helper()
	m, _ := testModules(t)
	f := &fakeMachine{answers: map[string][]error{}, held: map[string]bool{}}
	f.Mounter = NewMounter(m)
	dir := t.TempDir()
	f.sys, f.dev, f.proc, f.run = dir+"/sys", dir+"/dev", dir+"/proc", dir+"/run"
	f.kernel = calls{mount: f.fakeMount, unmount: f.fakeUnmount, openDisk: f.fakeOpen, setGroup: f.fakeGroup, write: writeFile}
	f.write(t, f.proc+"/filesystems", "nodev\ttmpfs\n\text4\n\terofs\n")
	// All drivers are built in.
	for _, bus := range []string{"virtio/drivers/virtio_blk", "virtio/drivers/virtio_scsi", "scsi/drivers/sd"} {
		must(t, os.MkdirAll(filepath.Join(f.sys, "bus", bus), 0o700))
	}
	must(t, os.MkdirAll(f.run, 0o700))
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write makes a file's text another, of which a reader sees all or nothing, as of
// a file of sysfs.
func (f *fakeMachine) write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path+".new", []byte(text), 0o600))
	must(t, os.Rename(path+".new", path))
}

// blk plugs in a virtio-blk disk behind the bridge in slot 01.
func (f *fakeMachine) blk(t *testing.T, slot, name, number string) {
	t.Helper()
	f.write(t, fmt.Sprintf("%s/devices/pci0000:00/0000:00:01.0/0000:01:%s.0/virtio3/block/%s/dev", f.sys, slot, name), number+"\n")
	must(t, os.MkdirAll(f.dev, 0o700))
	must(t, os.WriteFile(filepath.Join(f.dev, name), nil, 0o600))
}

// lun plugs in a disk at the SCSI controller in slot 02 behind the bridge.
func (f *fakeMachine) lun(t *testing.T, target, lun int, name, number string) {
	t.Helper()
	f.write(t, fmt.Sprintf("%s/devices/pci0000:00/0000:00:01.0/0000:01:02.0/virtio4/host5/target5:0:%d/5:0:%d:%d/block/%s/dev",
		f.sys, target, target, lun, name), number+"\n")
	must(t, os.MkdirAll(f.dev, 0o700))
	must(t, os.WriteFile(filepath.Join(f.dev, name), nil, 0o600))
}

// note records a call and returns its answer.
func (f *fakeMachine) note(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, call)
	answers := f.answers[call]
	if len(answers) == 0 {
		return nil
	}
	f.answers[call] = answers[1:]
	return answers[0]
}

func (f *fakeMachine) fakeMount(source, target, fstype string, flags uintptr, data string) error {
	words := []string{"mount", fstype, f.short(source), f.short(target)}
	for name, flag := range map[string]uintptr{"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "remount": unix.MS_REMOUNT, "bind": unix.MS_BIND} {
		if flags&flag != 0 {
			words = append(words, name)
		}
	}
	slices.Sort(words[4:])
	if data != "" {
		words = append(words, f.short(data))
	}
	return f.note(strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
}

func (f *fakeMachine) fakeUnmount(target string, flags int) error {
	word := "unmount "
	if flags&unix.MNT_DETACH != 0 {
		word = "detach "
	}
	return f.note(word + f.short(target))
}

func (f *fakeMachine) fakeGroup(_ context.Context, target string, group *api.FSGroup) error {
	return f.note(fmt.Sprint("group ", group.GetGid(), " ", f.short(target)))
}

func (f *fakeMachine) fakeOpen(disk Disk, flags int) error {
	if _, err := os.Stat(disk.Node); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if flags&unix.O_EXCL != 0 && f.held[filepath.Base(disk.Node)] {
		return unix.EBUSY
	}
	return nil
}

// short removes the test's directory from a text.
func (f *fakeMachine) short(text string) string {
	return strings.ReplaceAll(text, filepath.Dir(f.run)+"/", "")
}
