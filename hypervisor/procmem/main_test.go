package procmem

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test's program is also the process that has the memory: helperEnv is set
// for it then.
const helperEnv = "KATABOX_PROCMEM_HELPER"

// withLarge is its value for a helper with another file of largeSize bytes.
const (
	withLarge = "large"
	largeSize = 256 << 20
)

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "" {
		os.Exit(m.Run())
	}
	if err := help(); err != nil {
		fmt.Println(err)
	}
}

// pages is how many pages the memory has.
const pages = 3000

// original and changed are the content of page i.
func original(i int) []byte { return bytes.Repeat([]byte{byte(i%251) + 1}, pageSize) }

// changed is false for a page that the process leaves as it is. Some pages become
// zeros, and some are changed beside each other.
func changed(i int) ([]byte, bool) {
	switch i % 7 {
	case 3:
		return bytes.Repeat([]byte{byte(i%251) ^ 0xff}, pageSize), true
	case 4:
		return make([]byte, pageSize), true
	}
	return nil, false
}

// want returns a page as it is after the changes, or before.
func want(i int, after bool) []byte {
	if page, ok := changed(i); ok && after {
		return page
	}
	return original(i)
}

// help maps the file, changes it, and answers each line of its input: "changed"
// and "original" ask for an error if the memory is not that.
func help() error {
	memory, err := unix.Mmap(3, 0, pages*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	for i := range pages {
		if page, ok := changed(i); ok {
			copy(memory[i*pageSize:], page)
		}
	}
	if os.Getenv(helperEnv) == withLarge { // only the test writes there
		if _, err := unix.Mmap(4, 0, largeSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE); err != nil {
			return err
		}
	}
	faults := make(chan error, 100)
	keepWaiting(faults)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		select {
		case err := <-faults:
			fmt.Println(err)
		default:
			fmt.Println(compare(memory, lines.Text() == "changed"))
		}
	}
	return nil
}

func compare(memory []byte, after bool) string {
	for i := range pages {
		if got := memory[i*pageSize:][:pageSize]; !bytes.Equal(got, want(i, after)) {
			return fmt.Sprintf("page %d is %x..., want %x...", i, got[:4], want(i, after)[:4])
		}
	}
	return "ok"
}

// keepWaiting has threads wait in system calls of each kind that is made again
// after a signal: a wait with a deadline, one without, one that a handler ends.
// They are sent signals too, by the collector.
func keepWaiting(faults chan<- error) {
	wait := func(name string, call func() error) {
		go func() {
			runtime.LockOSThread()
			for {
				if err := call(); err != nil {
					faults <- fmt.Errorf("%s: %w", name, err)
				}
			}
		}()
	}
	wait("nanosleep", func() error {
		const pause = 20 * time.Millisecond
		began := time.Now()
		left := unix.NsecToTimespec(int64(pause))
		var err error
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Nanosleep(&left, &left)
		}
		if took := time.Since(began); took < pause {
			return fmt.Errorf("it took %v, want at least %v", took, pause)
		}
		return err
	})
	wait("ppoll", func() error {
		pause := unix.NsecToTimespec(int64(20 * time.Millisecond))
		n, err := unix.Ppoll(nil, &pause, nil)
		if errors.Is(err, unix.EINTR) || n == 0 && err == nil {
			return nil // the collector's signal has a handler, after which poll(2) is not made again
		}
		return fmt.Errorf("%d, %w", n, err)
	})
	var pipe [2]int
	_ = unix.Pipe(pipe[:])
	wait("read", func() error {
		if n, err := unix.Read(pipe[0], make([]byte, 1)); n != 1 || err != nil {
			return fmt.Errorf("%d, %w", n, err)
		}
		return nil
	})
	wait("write", func() error {
		time.Sleep(50 * time.Millisecond)
		runtime.GC()
		_, err := unix.Write(pipe[1], []byte{1})
		return err
	})
}

// process is a helper.
type process struct {
	*exec.Cmd
	to   io.WriteCloser
	from *bufio.Scanner
	file *os.File
}

func (p *process) Hold() (int, bool) { return p.Process.Pid, true }
func (p *process) Release()          {}

// start starts a helper with its memory.
func start(t *testing.T) *process {
	t.Helper()
	return startHelper(t, "small")
}

func startHelper(t *testing.T, kind string, others ...*os.File) *process {
	t.Helper()
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	must(t, err)
	p := &process{Cmd: exec.Command("/proc/self/exe"), file: os.NewFile(uintptr(fd), "memory")}
	t.Cleanup(func() { p.file.Close() })
	for i := range pages {
		_, err := p.file.WriteAt(original(i), int64(i)*pageSize)
		must(t, err)
	}
	p.Env, p.Stderr, p.ExtraFiles = append(os.Environ(), helperEnv+"="+kind), os.Stderr, append([]*os.File{p.file}, others...)
	p.to, err = p.StdinPipe()
	must(t, err)
	out, err := p.StdoutPipe()
	must(t, err)
	p.from = bufio.NewScanner(out)
	must(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	p.is(t, "changed")
	return p
}

// ask asks whether the memory is as the word says, and returns the answer, "ok"
// for yes.
func (p *process) ask(what string) (string, error) {
	if _, err := fmt.Fprintln(p.to, what); err != nil {
		return "", err
	}
	if !p.from.Scan() {
		return "", errors.Join(p.from.Err(), io.ErrUnexpectedEOF)
	}
	return p.from.Text(), nil
}

// is checks the memory, as the process sees it.
func (p *process) is(t *testing.T, what string) {
	t.Helper()
	if got, err := p.ask(what); err != nil || got != "ok" {
		t.Errorf("the memory is not %s: %s, %v", what, got, err)
	}
}

func (p *process) mapping(t *testing.T) *Mapping {
	t.Helper()
	return p.mappingOf(t, p.file)
}

func (p *process) mappingOf(t *testing.T, file *os.File) *Mapping {
	t.Helper()
	id, err := IDOf(file)
	must(t, err)
	all, err := Mappings(p, id)
	must(t, err)
	t.Cleanup(func() {
		if err := closeAll(all); err != nil {
			t.Error(err)
		}
	})
	if len(all) != 1 {
		t.Fatalf("%d mappings, want 1", len(all))
	}
	return all[0]
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// failsWith checks an error's text.
func failsWith(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("want an error with %q, got: %v", w, err)
		}
	}
}

// singleThreaded returns a process of one thread, which sleeps.
func singleThreaded(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "3600")
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	awaitSleep(t, cmd.Process.Pid)
	return cmd.Process.Pid
}

// awaitSleep waits until a process of singleThreaded sleeps.
func awaitSleep(t *testing.T, pid int) {
	t.Helper()
	for range 1000 {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && bytes.Contains(text, []byte("(sleep) S ")) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the process does not sleep")
}

// awaitStop waits until all of the process's threads are stopped.
func (p *process) awaitStop(t *testing.T) {
	t.Helper()
	for range 1000 {
		all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Process.Pid))
		must(t, err)
		if !slices.ContainsFunc(all, func(stat string) bool {
			text, _ := os.ReadFile(stat)
			return !bytes.Contains(text, []byte(") T "))
		}) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the process does not stop")
}
