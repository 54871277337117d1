package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/standalone/store"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// newContainer makes a container's directory and record, with this process as its
// engine.
func newContainer(t *testing.T, name string) (*Manager, *Record, string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	s, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &Manager{Store: s, Shim: "/nonexistent"}
	dir, err := s.MakeContainer(name, store.Image{Name: "image", Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	self, err := persist.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	r := &Record{Name: name, Engine: self}
	if err := m.write(r); err != nil {
		t.Fatal(err)
	}
	return m, r, dir
}

func TestLogGivesBackWhatWasWritten(t *testing.T) {
	m, _, dir := newContainer(t, "c")
	l, err := openLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.max = 1 << 10
	long := strings.Repeat("x", 3*maxLogChunk) // a line in parts; after it a new file is started
	for _, part := range []string{"a\n", "b", "c\n\n", "\x00\xff bin ary\n", long, "\nafter ", "the end"} {
		l.write("stdout", []byte(part))
	}
	l.write("stderr", []byte("error\n"))
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	if err := m.Logs(context.Background(), "c", false, &out, &errOut); err != nil {
		t.Fatal(err)
	}
	if want := "a\nbc\n\n\x00\xff bin ary\n" + long + "\nafter the end"; out.String() != want || errOut.String() != "error\n" {
		t.Errorf("%d bytes, want %d; standard error %q", out.Len(), len(want), errOut.String())
	}
}

// The log stays small, however much is written.
func TestLogIsBounded(t *testing.T) {
	_, _, dir := newContainer(t, "c")
	l, err := openLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.max = 64 << 10
	line := []byte(strings.Repeat("y", 1000) + "\n")
	for range 1000 {
		l.write("stdout", line)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, logFile+"*"))
	if err != nil || len(files) != 2 {
		t.Errorf("files %v, %v; want 2", files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > l.max+2000 {
			t.Errorf("%s: %v, %v", f, info, err)
		}
	}
}

// tmpfs mounts a file system of that size, which resize changes.
func tmpfs(t *testing.T, size int) (dir string, resize func(size int)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir = t.TempDir()
	mount := func(size int, flags uintptr) {
		if err := unix.Mount("none", dir, "tmpfs", flags, fmt.Sprintf("size=%d", size)); err != nil {
			t.Fatal(err)
		}
	}
	mount(size, 0)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func(size int) { mount(size, unix.MS_REMOUNT) }
}

// A disk that is full for a while costs a log what is written meanwhile. A reader that
// follows the log gets whole lines, and is told how much it lacks.
func TestLogOfFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which all times have one length
		page := os.Getpagesize()
		dir, resize := tmpfs(t, 2*page)
		l, err := openLog(dir)
		if err != nil {
			t.Fatal(err)
		}
		var out, errOut strings.Builder
		r := &logReader{dir: dir, out: &out, err: &errOut}
		defer r.close()
		want, offered := "", 0
		write := func(n int) {
			text := fmt.Sprintf("%04d%s\n", n, strings.Repeat("z", 95))
			l.write(stdoutName, []byte(text))
			want += text
			offered += len(logLines(stdoutName, []byte(text)))
			if err := r.readAll(); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 3 * page / 100 {
			write(n)
		}
		select {
		case err := <-l.failed:
			if !errors.Is(err, unix.ENOSPC) {
				t.Errorf("error %v", err)
			}
		default:
			t.Fatal("the first error is not told")
		}
		read := out.Len()
		if !strings.HasPrefix(want, out.String()) || read < page || errOut.Len() > 0 {
			t.Errorf("%d bytes on a full disk, %q", read, errOut.String())
		}
		resize(20 * page)
		whole := want
		want = ""
		for n := range 10 {
			write(n)
		}
		if begun, ok := strings.CutSuffix(out.String(), want); !ok || !strings.HasPrefix(whole, begun) {
			t.Errorf("the log is %q", out.String())
		}
		info, err := os.Stat(filepath.Join(dir, logFile))
		if err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprintf("%d bytes of the log were lost\n", offered-int(info.Size())+len(logLines(stderrName, []byte(errOut.String()))))
		if errOut.String() != said {
			t.Errorf("%q, want %q", errOut.String(), said)
		}
		if err := l.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// A new file that cannot be made is tried again.
func TestLogRotationFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which all times have one length
		dir := t.TempDir()
		l, err := openLog(dir)
		if err != nil {
			t.Fatal(err)
		}
		l.max = 10
		old := filepath.Join(dir, oldLogFile)
		if err := os.Mkdir(old, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"first\n", "lost\n"} {
			l.write(stdoutName, []byte(text))
		}
		if err := os.Remove(old); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, logFile), old); err != nil { // an earlier try came this far
			t.Fatal(err)
		}
		l.write(stdoutName, []byte("second\n"))
		var out, errOut strings.Builder
		r := &logReader{dir: dir, out: &out, err: &errOut}
		defer r.close()
		if err := r.readAll(); err != nil {
			t.Fatal(err)
		}
		lost := fmt.Sprintf("%d bytes of the log were lost\n", len(logLines(stdoutName, []byte("lost\n"))))
		if out.String() != "first\nsecond\n" || errOut.String() != lost {
			t.Errorf("the log is %q, and says %q, want %q", out.String(), errOut.String(), lost)
		}
		if err := l.close(); err == nil || !strings.Contains(err.Error(), oldLogFile) {
			t.Errorf("close: %v", err)
		}
	})
}

// What is lost at the end is said at the end.
func TestLogEndsOnFullDisk(t *testing.T) {
	l, err := openLog(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if l.file, err = os.OpenFile("/dev/full", os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l.write(stdoutName, []byte("x\n"))
	}
	if err := l.close(); !errors.Is(err, unix.ENOSPC) || !regexp.MustCompile(`its last \d\d\d bytes were lost`).MatchString(err.Error()) {
		t.Errorf("close: %v", err)
	}
}

// A following reader sees what is written while it reads, also in a new file, and
// ends with the container.
func TestFollowToTheEnd(t *testing.T) {
	m, r, dir := newContainer(t, "c")
	l, err := openLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.max = 100
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var out bytes.Buffer
	done := make(chan error)
	go func() { done <- m.Logs(ctx, "c", true, &out, &out) }()
	want := ""
	for i := range 4 { // no more than a reader that is one file behind can get
		line := fmt.Sprintf("line %d\n", i)
		want += line
		l.write("stdout", []byte(line))
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	r.Exited = &Exit{At: time.Now()}
	if err := m.write(r); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	m, _, dir := newContainer(t, "c")
	l, err := openLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.Logs(ctx, "c", true, os.Stdout, os.Stderr); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := m.Logs(ctx, "none", true, os.Stdout, os.Stderr); !errdefs.IsNotFound(err) {
		t.Errorf("of no container: %v", err)
	}
}

func TestStates(t *testing.T) {
	m, r, _ := newContainer(t, "c")
	now := time.Now()
	for want, change := range map[string]func(*Record){
		"starting":    func(*Record) {},
		"running":     func(r *Record) { r.Started = &now },
		"exited (42)": func(r *Record) { r.Started, r.Exited = &now, &Exit{Code: 42} },
		"dead":        func(r *Record) { r.Engine.PID = 1 << 30 },
	} {
		changed := *r
		change(&changed)
		if got := changed.State(); got != want {
			t.Errorf("state %q, want %q", got, want)
		}
	}
	ctx := context.Background()
	r.Engine.PID = 1 << 30
	if err := m.write(r); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(ctx, "c", 0); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("stop of a dead container: %v", err)
	}
	if err := m.Remove(ctx, "c", false); err != nil {
		t.Errorf("remove of a dead container: %v", err)
	}
	if _, err := m.Load("c"); !errdefs.IsNotFound(err) {
		t.Errorf("after remove: %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	for text, want := range map[string]int{
		`create: exec: "nosuch": executable file not found in $PATH`:       127,
		`create: exec: "/nosuch": stat /nosuch: no such file or directory`: 127,
		`create: exec: "/etc": is a directory`:                             126,
		`create: exec: "/x": permission denied`:                            126,
		`exec /x: exec format error`:                                       126,
		`open /dev/kvm: permission denied`:                                 125,
		`mount rootfs: no such file or directory`:                          125,
		`exec /x y: no such file or directory`:                             127,
		`exec bin/x: no such file or directory`:                            127,
		`boot sandbox c: vm: find monitor executable: stat /usr/bin/qemu-system-x86_64: no such file or directory`: 125,
		`boot sandbox c: vm: launch virtual machine c: execute /usr/bin/qemu-system-x86_64: permission denied`:     125,
		`exec in container c: open /sys/fs/cgroup/c: no such file or directory`:                                    125,
		`exec in container c: exec: "nosuch": executable file not found in $PATH`:                                  127,
	} {
		if got := CodeOf(fmt.Errorf("run: %w", startError(errors.New(text)))); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}
