package vsock

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// dialUp dials until the port has a listener, as the shim does for its agent.
func dialUp(ctx context.Context, tr Transport, port uint32) (Conn, error) {
	for {
		c, err := tr.Dial(ctx, port)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// The ports of testguest.
const (
	guestEcho    = 1
	guestSink    = 2
	guestSource  = 3
	guestCommand = 4
	guestStall   = 5
	guestDiscard = 6
	guestSmall   = 7
)

// TestQEMU tests the device with QEMU and Linux's driver.
func TestQEMU(t *testing.T) {
	start := time.Now()
	tr, vm := bootGuest(t, Options{})
	c := dialGuest(t, tr, guestEcho) // started long before the driver is up
	t.Logf("first connection %v after the start of QEMU", time.Since(start))
	if err := c.Close(); err != nil {
		t.Error(err)
	}

	t.Run("no listener", func(t *testing.T) {
		if _, err := tr.Dial(t.Context(), 999); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v, want ECONNREFUSED", err)
		}
	})
	t.Run("latency", func(t *testing.T) { qemuLatency(t, tr) })
	t.Run("host to guest", func(t *testing.T) { qemuSink(t, tr, 16<<20) })
	t.Run("guest to host", func(t *testing.T) { qemuSource(t, tr, 64<<20) })
	t.Run("rates", func(t *testing.T) { qemuRates(t, tr, vm, 128<<20) })
	t.Run("small packets", func(t *testing.T) { qemuSmall(t, tr, 2*time.Second) })
	t.Run("200 connections", func(t *testing.T) { qemuEchoMany(t, tr, 200, 64<<10) })
	t.Run("1000 connections", func(t *testing.T) { qemuEchoMany(t, tr, 1000, 16<<10) })
	t.Run("guest dials", func(t *testing.T) { qemuGuestDials(t, tr, 200) })
	t.Run("guest stalls", func(t *testing.T) { qemuStall(t, tr) })
	t.Run("death", func(t *testing.T) { qemuDeath(t, tr, vm) })
}

// TestQEMUGuestReset checks that a guest's end is noticed.
func TestQEMUGuestReset(t *testing.T) {
	tr, _ := bootGuest(t, Options{})
	c := dialGuest(t, tr, guestCommand)
	if _, err := fmt.Fprintln(c, "crash"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := io.Copy(io.Discard, c); err == nil {
		t.Error("the connection ended without an error")
	}
	t.Logf("end seen after %v", time.Since(start))
	if _, err := dialUp(t.Context(), tr, guestEcho); !errors.Is(err, ErrGone) {
		t.Errorf("dial after the end: %v, want ErrGone", err)
	}
}

func qemuLatency(t *testing.T, tr Transport) {
	var dials, pings []time.Duration
	for range 200 {
		start := time.Now()
		c := dialGuest(t, tr, guestEcho)
		dials = append(dials, time.Since(start))
		_ = c.Close()
	}
	c := dialGuest(t, tr, guestEcho)
	defer c.Close()
	one := []byte{1}
	for range 2000 {
		start := time.Now()
		if _, err := c.Write(one); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, one); err != nil {
			t.Fatal(err)
		}
		pings = append(pings, time.Since(start))
	}
	for name, all := range map[string][]time.Duration{"connect": dials, "1-byte echo": pings} {
		slices.Sort(all)
		t.Logf("%s: p50 %v, p99 %v", name, all[len(all)/2], all[len(all)*99/100])
	}
}

func qemuSink(t *testing.T, tr Transport, size int) {
	c := dialGuest(t, tr, guestSink)
	defer c.Close()
	data := bytes.Repeat([]byte("katabox vsock 16"), size/16)
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c) // after our half-close
	sum := sha256.Sum256(data)
	want := append(binary.LittleEndian.AppendUint64(nil, uint64(size)), sum[:]...)
	if err != nil || !bytes.Equal(answer, want) {
		t.Errorf("guest got something else: %x, %v", answer, err)
	}
}

func qemuSource(t *testing.T, tr Transport, size int) {
	c := dialGuest(t, tr, guestSource)
	defer c.Close()
	if err := binary.Write(c, binary.LittleEndian, uint64(size)); err != nil {
		t.Fatal(err)
	}
	got, want := sha256.New(), sha256.New()
	n, err := io.CopyBuffer(got, struct{ io.Reader }{c}, make([]byte, 256<<10))
	want.Write(bytes.Repeat([]byte("0123456789abcdef"), size/16))
	if err != nil || n != int64(size) || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("got %d bytes of %d, %v", n, size, err)
	}
}

// qemuRates measures the transport's throughput, with both sides otherwise
// idle. On a busy machine the CPU times say more than the rate.
func qemuRates(t *testing.T, tr Transport, vm *qemuVM, size int) {
	own, theirs := cpuTime(t, os.Getpid()), cpuTime(t, vm.cmd.Process.Pid)
	rate := func(way string, start time.Time) {
		took := time.Since(start)
		ownNow, theirsNow := cpuTime(t, os.Getpid()), cpuTime(t, vm.cmd.Process.Pid)
		t.Logf("%s: %d MiB in %v: %.0f MiB/s; CPU time of QEMU %v, of this process %v",
			way, size>>20, took, float64(size)/(1<<20)/took.Seconds(), theirsNow-theirs, ownNow-own)
		own, theirs = ownNow, theirsNow
	}
	c := dialGuest(t, tr, guestDiscard)
	defer c.Close()
	start := time.Now()
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	rate("host to guest", start)

	s := dialGuest(t, tr, guestSource)
	defer s.Close()
	start = time.Now()
	if err := binary.Write(s, binary.LittleEndian, uint64(size)); err != nil {
		t.Fatal(err)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{s}, make([]byte, 256<<10))
	if err != nil || n != int64(size) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	rate("guest to host", start)
}

// qemuSmall lets the guest send as many small packets as it can: a lost
// notification shows as a read that never returns.
func qemuSmall(t *testing.T, tr Transport, d time.Duration) {
	c := dialGuest(t, tr, guestSmall)
	defer c.Close()
	buf := make([]byte, 64<<10)
	bytes := 0
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(buf)
		if err != nil {
			t.Fatalf("after %d writes: %v", bytes/64, err)
		}
		bytes += n
	}
	t.Logf("%d writes of 64 bytes in %v", bytes/64, d)
}

func qemuEchoMany(t *testing.T, tr Transport, n, size int) {
	start := time.Now()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := echoOnce(t, tr, bytes.Repeat([]byte{byte(i)}, size)); err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	all.Wait()
	t.Logf("%d connections, %d KiB each way: %v", n, size>>10, time.Since(start))
}

func echoOnce(t *testing.T, tr Transport, data []byte) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := dialUp(ctx, tr, guestEcho)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		sent <- errors.Join(err, c.CloseWrite())
	}()
	back, err := io.ReadAll(c)
	if err = errors.Join(err, <-sent); err != nil {
		return err
	}
	if !bytes.Equal(back, data) {
		return fmt.Errorf("%d bytes came back of %d", len(back), len(data))
	}
	return nil
}

// qemuGuestDials makes the guest dial the host, and checks that Linux's driver
// sees the refusals.
func qemuGuestDials(t *testing.T, tr Transport, n int) {
	c := dialGuest(t, tr, guestCommand)
	defer c.Close()
	if _, err := fmt.Fprintln(c, "dial 7000", n); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || answer != fmt.Sprintln(n) {
		t.Errorf("%q of %d were refused, %v", answer, n, err)
	}
	qemuEchoMany(t, tr, 1, 16<<10)
}

// qemuStall writes to a guest that does not read, and checks that other
// connections are not affected.
func qemuStall(t *testing.T, tr Transport) {
	stalled := dialGuest(t, tr, guestStall)
	defer stalled.Close()
	if err := stalled.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := stalled.Write(make([]byte, 16<<20))
	t.Logf("blocked after %d KiB", n>>10)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write to a guest that does not read: %v", err)
	}
	qemuEchoMany(t, tr, 10, 64<<10)
}

func qemuDeath(t *testing.T, tr Transport, vm *qemuVM) {
	var all sync.WaitGroup
	for range 200 {
		c := dialGuest(t, tr, guestEcho)
		all.Go(func() {
			defer c.Close()
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, ErrGone) {
				t.Errorf("read: %v, want ErrGone", err)
			}
		})
	}
	start := time.Now()
	vm.kill()
	all.Wait()
	t.Logf("200 connections ended within %v", time.Since(start))
	if _, err := tr.Dial(t.Context(), guestEcho); !errors.Is(err, ErrGone) {
		t.Errorf("dial: %v, want ErrGone", err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if _, err := tr.Dial(t.Context(), guestEcho); !errors.Is(err, net.ErrClosed) && !errors.Is(err, ErrGone) {
		t.Errorf("dial after close: %v", err)
	}
}
