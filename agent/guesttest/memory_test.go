package guesttest

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// A container may reserve more memory than the guest has.
func TestGuestOvercommit(t *testing.T) {
	m := guestOnly(t)
	// dd allocates its buffer, and then finds nothing to read.
	if r := m.run(t, "sparse", shell("dd if=/dev/null of=/dev/null bs=64G")); r.exit.GetStatus() != 0 {
		t.Errorf("%+v", r)
	}
}

// Where reservations are limited, a container without CAP_SYS_ADMIN leaves enough for the
// agent, which ends if it cannot start a thread.
func TestGuestReservesForTheAgent(t *testing.T) {
	m := guestOnly(t)
	const limited, full = "/rootfs/tmp/limited", "/rootfs/tmp/full"
	m.start(t, "greedy", shell(`mkfifo /tmp/endless; exec 3<>/tmp/endless
while ! [ -e /tmp/limited ]; do sleep 0.1; done
(for size in 64M 16M 4M 1M 256K; do
	while dd bs=$size of=/dev/null <&3 & sleep 0.1; kill -0 $!; do :; done
done)
: >/tmp/full; read x <&3`))
	const mode = "/proc/sys/vm/overcommit_memory"
	before := fileIn(t, mode)
	set := func(file, value string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set(mode, "2")
	defer set(mode, strings.TrimSpace(before))
	set(limited, "")
	awaitFile(t, full)
	var threads sync.WaitGroup
	hold := make(chan struct{})
	for range 5 {
		threads.Go(func() {
			runtime.LockOSThread()
			<-hold
		})
	}
	time.Sleep(100 * time.Millisecond)
	close(hold)
	threads.Wait()
}

// awaitFile waits until a container has made a file.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < callTimeout; time.Sleep(100 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Fatalf("%s was not made in time", path)
}
