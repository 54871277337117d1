package rights

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// dropEnv makes this test binary drop its rights and print those of each of its
// threads.
const dropEnv = "KATABOX_TEST_DROP"

func TestMain(m *testing.M) {
	if os.Getenv(dropEnv) != "" {
		if err := printDropped(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func printDropped() error {
	for range 3 { // threads that are there already
		go func() {
			runtime.LockOSThread()
			time.Sleep(time.Hour)
		}()
	}
	for n := 0; n < 5; time.Sleep(time.Millisecond) {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		n = len(tasks)
	}
	if err := Drop(); err != nil {
		return err
	}
	files, err := filepath.Glob("/proc/self/task/*/status")
	for _, file := range files {
		text, readErr := os.ReadFile(file)
		if readErr != nil {
			return readErr
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "Cap") || strings.HasPrefix(line, "NoNewPrivs") {
				fmt.Print(line)
			}
		}
	}
	return err
}

// After Drop no thread has a capability, or a way to gain one.
func TestDrop(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs rights to drop")
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0); errno == syscall.ENOTSUP {
		t.Skip("built with cgo: TestStreamsAndPod of tests/oci has a program without")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), dropEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	threads := 0
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		want := "0000000000000000"
		if name == "NoNewPrivs" {
			want = "1"
			threads++
		}
		if value != want {
			t.Errorf("%s is %q, want %s", name, value, want)
		}
	}
	if threads < 5 {
		t.Errorf("%d threads: %s", threads, out)
	}
}
