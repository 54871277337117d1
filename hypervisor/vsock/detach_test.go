package vsock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

// unplugger is a machine whose device is removed by a function of the test.
type unplugger func(ctx context.Context) error

// Detach implements hypervisor.Detacher.
func (u unplugger) Detach(ctx context.Context, id string) error {
	if id != DeviceID {
		return errdefs.ErrNotFound
	}
	return u(ctx)
}

// unplug is what happens to the guest and its front end: the driver resets the
// device, which the VMM then removes.
func (g *fakeGuest) unplug(context.Context) error {
	g.stop()
	g.front.Close()
	return nil
}

// TestDetach ends every connection, after what had arrived; the transport then
// serves another machine.
func TestDetach(t *testing.T) {
	tr, g := boot(t, nil)
	for range 3 {
		data, req := g.dialled(tr, 1, maxBufAlloc)
		g.send(req.reply(opData), []byte("arrived"))
		ended, req := g.dialled(tr, 2, maxBufAlloc)
		g.send(req.reply(opData), []byte("all"))
		end := req.reply(opShutdown)
		end.flags = shutBoth
		g.send(end, nil)
		g.expect(opReset)
		b := makeBusy(t, tr, g) // its Dial goes on
		must(t, tr.Detach(t.Context(), unplugger(g.unplug)))

		next := attached(t, tr, nil)
		next.start()
		if err := tr.Attach(t.Context(), next); err == nil {
			t.Error("attached twice")
		}
		again := next.expect(opRequest)
		if again.dstPort != 2 {
			t.Errorf("the dial that was under way asks for port %d", again.dstPort)
		}
		next.send(again.reply(opResponse), nil)
		b.all.Wait()
		if !errors.Is(b.read, syscall.ECONNRESET) || !errors.Is(b.write, syscall.ECONNRESET) || b.dial != nil {
			t.Errorf("read: %v, write: %v, dial: %v", b.read, b.write, b.dial)
		}
		if got, err := io.ReadAll(data); string(got) != "arrived" || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read %q, then %v", got, err)
		}
		if got, err := io.ReadAll(ended); string(got) != "all" || err != nil {
			t.Errorf("read %q, then %v, of what the guest has closed", got, err)
		}
		for _, c := range []Conn{data, ended, b.conn} {
			must(t, c.Close())
		}
		g = next
	}
}

// TestDetachFails keeps the device, and its connections, as they were.
func TestDetachFails(t *testing.T) {
	tr, g := boot(t, nil)
	c, req := g.dialled(tr, 1, maxBufAlloc)
	keeps := errors.New("the guest keeps it")
	if err := tr.Detach(t.Context(), unplugger(func(context.Context) error { return keeps })); !errors.Is(err, keeps) {
		t.Fatalf("got %v", err)
	}
	g.send(req.reply(opData), []byte("after"))
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "after" {
		t.Errorf("read %q, %v", got, err)
	}
	g.dialled(tr, 2, maxBufAlloc)
	if err := tr.Attach(t.Context(), g); err == nil {
		t.Error("attached twice")
	}
	g.front.Close() // the end of a machine is no reset
	if _, err := c.Read(got); !errors.Is(err, ErrGone) {
		t.Errorf("read after the machine's end: %v", err)
	}
	if _, err := tr.Dial(t.Context(), 1); !errors.Is(err, ErrGone) {
		t.Errorf("dial after the machine's end: %v", err)
	}
}

// TestDetachLeavesSomething has lost its device all the same.
func TestDetachLeavesSomething(t *testing.T) {
	tr, g := boot(t, nil)
	c, _ := g.dialled(tr, 1, maxBufAlloc)
	must(t, tr.Detach(t.Context(), unplugger(func(ctx context.Context) error {
		return errors.Join(g.unplug(ctx), fmt.Errorf("remove its socket: %w", hypervisor.ErrLeftover))
	})))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v", err)
	}
	next := attached(t, tr, nil)
	next.start()
	next.dialled(tr, 2, maxBufAlloc)
}

// TestDetachInDisorder is without a machine, twice at once, and after Close.
func TestDetachInDisorder(t *testing.T) {
	none := unplugger(func(context.Context) error {
		t.Error("a machine without the device was asked for it")
		return nil
	})
	user, err := Open(t.Context(), Options{VhostPath: "/nonexistent"})
	must(t, err)
	for _, tr := range []Transport{user, newKernel(t, nil)} {
		if k, ok := tr.(*kernelTransport); ok {
			k.claim = func() (*os.File, uint32, error) { f, err := os.Open(os.DevNull); return f, 43, err }
		}
		if err := tr.Detach(t.Context(), none); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s without a machine: %v", tr.Kind(), err)
		}
		must(t, tr.Attach(t.Context(), &keeper{}))
		err := tr.Detach(t.Context(), unplugger(func(context.Context) error {
			if err := tr.Detach(t.Context(), none); !errdefs.IsFailedPrecondition(err) {
				t.Errorf("%s during another: %v", tr.Kind(), err)
			}
			return tr.Close()
		}))
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s during Close: %v", tr.Kind(), err)
		}
		if err := tr.Detach(t.Context(), none); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %v", tr.Kind(), err)
		}
		if _, err := tr.Dial(t.Context(), 7); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial of %s after Close: %v", tr.Kind(), err)
		}
	}
}

// keeper is a machine that keeps its end of a device open.
type keeper struct{ file *os.File }

func (k *keeper) Attach(_ context.Context, d hypervisor.Device) error {
	if user, ok := d.(hypervisor.VhostUserVsock); ok {
		fd, err := unix.FcntlInt(user.Socket.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		k.file = os.NewFile(uintptr(fd), "kept")
		return err
	}
	return nil
}

// TestDialWithoutMachine waits between two machines for the second, within its
// context.
func TestDialWithoutMachine(t *testing.T) {
	tr, g := boot(t, nil)
	must(t, tr.Detach(t.Context(), unplugger(g.unplug)))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := tr.Dial(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial: %v", err)
	}
	next := attached(t, tr, nil)
	next.start()
	next.dialled(tr, 1, maxBufAlloc)
}

// TestDetachIsHeld keeps what Hold said for the next device.
func TestDetachIsHeld(t *testing.T) {
	tr, g := boot(t, nil)
	tr.Hold(true)
	must(t, tr.Detach(t.Context(), unplugger(g.unplug)))
	g = attached(t, tr, nil)
	g.start()
	c, req := g.dialled(tr, 1, maxBufAlloc)
	g.restart(g.stop())
	g.send(req.reply(opData), []byte("x"))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("read after a pause: %v", err)
	}
}

// TestKernelDetach has another file and context id for the next machine; a dial
// goes on with them.
func TestKernelDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newKernel(t, nil)
		file, err := os.Open(os.DevNull)
		must(t, err)
		tr.claim = func() (*os.File, uint32, error) { return file, 43, nil }
		var cids []uint32
		tr.dialCID = func(_ context.Context, cid, _ uint32) (Conn, error) {
			if len(cids) == 0 || cids[len(cids)-1] != cid {
				cids = append(cids, cid)
			}
			if cid == 42 {
				return nil, syscall.ENODEV // as when the file has just been closed
			}
			c, other := net.Pipe()
			t.Cleanup(func() { _ = other.Close() })
			return pipeConn{c}, nil
		}
		must(t, tr.Attach(t.Context(), &taker{}))
		dialled := make(chan error, 1)
		keeps := errors.New("the guest keeps it")
		err = tr.Detach(t.Context(), unplugger(func(context.Context) error {
			go func() {
				_, err := tr.Dial(context.Background(), 7)
				dialled <- err
			}()
			time.Sleep(time.Second)
			return nil
		}))
		must(t, err)
		must(t, <-dialled)
		if len(cids) != 2 || cids[0] != 42 || cids[1] != 43 {
			t.Errorf("context ids %v were dialled", cids)
		}
		vm := &taker{}
		must(t, tr.Attach(t.Context(), vm))
		if d, ok := vm.got.(hypervisor.VhostVsock); !ok || d.CID != 43 || d.File != file {
			t.Errorf("the machine got %+v", vm.got)
		}

		file, err = os.Open(os.DevNull)
		must(t, err)
		if err := tr.Detach(t.Context(), unplugger(func(context.Context) error { return keeps })); !errors.Is(err, keeps) {
			t.Errorf("got %v", err)
		}
		if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Error("the file that is not needed is still open")
		}
		if tr.currentCID() != 43 || tr.Attach(t.Context(), vm) == nil {
			t.Error("after an error the machine has not its device as before")
		}
		must(t, tr.Close())
	})
}
