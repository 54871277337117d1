package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// parentEnv makes this test binary the parent of a child with the namespaces
// that its value names, and jailedEnv of one in a jail.
const (
	parentEnv = "KATABOX_TEST_PARENT"
	jailedEnv = "KATABOX_TEST_JAILED"
)

func TestMain(m *testing.M) {
	if flags, ok := os.LookupEnv(parentEnv); ok {
		os.Exit(beParent(flags))
	}
	goleak.VerifyTestMain(m)
}

// beParent starts a child, prints its pid and waits to be killed.
func beParent(flags string) int {
	n, err := strconv.ParseUint(flags, 10, 64)
	if err != nil {
		return 2
	}
	opts := Options{Path: "/bin/sleep", Args: []string{"1000"}, Cloneflags: uintptr(n)}
	if _, ok := os.LookupEnv(jailedEnv); ok {
		// It prints something as soon as it runs.
		opts.Path, opts.Args = "/usr/bin/env", []string{"sh", "-c", "echo ran; exec sleep 1000"}
		opts.Env = []string{"PATH=/usr/bin:/bin"}
		opts.Jail = &Jail{UID: jailUser, GID: jailUser, Show: []string{"/usr", "/bin", "/lib", "/lib64"}}
	}
	ran := make(chan struct{})
	if opts.Jail == nil {
		close(ran)
	} else {
		opts.StdoutLine = func(string) { close(ran) }
	}
	p, err := Start(opts)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	select {
	case <-ran:
	case <-p.Done():
		fmt.Println(p.Stderr())
		return 1
	case <-time.After(time.Minute):
		fmt.Println("the child does not run")
		return 1
	}
	fmt.Println(p.Pid())
	<-p.Done()
	return 0
}

func TestChildDiesWithParent(t *testing.T) {
	for _, test := range []struct {
		flags uint64
		jail  bool
	}{{0, false}, {unix.CLONE_NEWPID, false}, {unix.CLONE_NEWPID, true}} {
		t.Run(fmt.Sprintf("clone flags %#x, jail %v", test.flags, test.jail), func(t *testing.T) {
			if (test.flags != 0 || test.jail) && os.Geteuid() != 0 {
				t.Skip("making namespaces needs root")
			}
			parent := exec.Command(os.Args[0])
			parent.Env = append(os.Environ(), fmt.Sprintf("%s=%d", parentEnv, test.flags))
			if test.jail {
				parent.Env = append(parent.Env, jailedEnv+"=1")
			}
			out, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			line, _ := bufio.NewReader(out).ReadString('\n')
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatalf("the parent says %q", line)
			}
			pidfd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(pidfd)
			if ended(t, pidfd, 0) {
				t.Fatal("the child ended before its parent")
			}
			_ = parent.Process.Kill()
			_ = parent.Wait()
			if !ended(t, pidfd, 10_000) {
				_ = unix.Kill(pid, unix.SIGKILL)
				t.Error("the child outlives its parent")
			}
		})
	}
}

// ended waits for the end of a process that is not a child of this one.
func ended(t *testing.T, pidfd, milliseconds int) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, milliseconds)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// The thread that called Start may end; the child must not end with it.
func TestChildOutlivesStartingThread(t *testing.T) {
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answer, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	defer feed.Close()
	var p *Process
	tid := onEndingThread(func() {
		p = shell(t, "read x <&3; echo got $x >&4", Options{ExtraFiles: []*os.File{in, out}})
	})
	_, _ = in.Close(), out.Close()
	ctx := bounded(t)
	for threadLives(tid) {
		if ctx.Err() != nil {
			t.Fatal("the thread does not end")
		}
		time.Sleep(time.Millisecond) // nothing signals this
	}
	_, _ = feed.WriteString("word\n")
	if got, err := bufio.NewReader(answer).ReadString('\n'); got != "got word\n" {
		t.Errorf("the child answers %q, %v", got, err)
	}
	await(t, p)
}

// onEndingThread calls f on a thread that ends afterwards, and returns the
// thread's id.
func onEndingThread(f func()) (tid int) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and no unlock: the thread ends with the goroutine
		tid = unix.Gettid()
		if tid == os.Getpid() { // unless it is the main thread, which stays
			tid = onEndingThread(f)
			return
		}
		f()
	}()
	<-done
	return tid
}

func threadLives(tid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid))
	return err == nil
}
