package vsock

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor"
)

func TestClaimCID(t *testing.T) {
	wrong := errors.New("no such device")
	for _, tc := range []struct {
		name   string
		errs   []error // of the attempts; the last one is repeated
		tries  int
		failed error
	}{
		{"free", []error{nil}, 1, nil},
		{"taken twice", []error{syscall.EADDRINUSE, syscall.EADDRINUSE, nil}, 3, nil},
		{"all taken", []error{syscall.EADDRINUSE}, cidAttempts, syscall.EADDRINUSE},
		{"broken", []error{wrong}, 1, wrong},
	} {
		seen := map[uint64]bool{}
		tries := 0
		cid, err := claimCID(func(cid uint64) error {
			seen[cid] = true
			tries++
			return tc.errs[min(tries, len(tc.errs))-1]
		})
		if tries != tc.tries || len(seen) != tries || !errors.Is(err, tc.failed) {
			t.Errorf("%s: %d tries of %d ids, %v", tc.name, tries, len(seen), err)
		}
		if err == nil && (!seen[uint64(cid)] || cid < 3 || cid == 1<<32-1) {
			t.Errorf("%s: id %d", tc.name, cid)
		}
	}
}

// TestOpenChooses opens a file that is not vhost-vsock: because it exists, it
// is not silently ignored.
func TestOpenChooses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vhost-vsock")
	must(t, os.WriteFile(path, nil, 0o600))
	if _, err := Open(t.Context(), Options{VhostPath: path}); !errors.Is(err, syscall.ENOTTY) {
		t.Errorf("open: %v, want ENOTTY", err)
	}
}

// newKernel makes a transport whose dial is a function of the test.
func newKernel(t *testing.T, dial func(ctx context.Context) (Conn, error)) *kernelTransport {
	t.Helper()
	file, err := os.Open(os.DevNull)
	must(t, err)
	return &kernelTransport{
		cid: 42, file: file, open: map[io.Closer]struct{}{},
		dialCID: func(ctx context.Context, cid, port uint32) (Conn, error) {
			if cid != 42 || port != 7 {
				t.Errorf("dial of %d:%d", cid, port)
			}
			return dial(ctx)
		},
		claim: func() (*os.File, uint32, error) { return nil, 0, errors.New("no other is expected") },
	}
}

type pipeConn struct{ net.Conn }

func (pipeConn) CloseWrite() error { return nil }

func TestKernelDial(t *testing.T) {
	for _, tc := range []struct {
		name string
		errs []error
		want error
	}{
		{"answered", []error{nil}, nil},
		{"driver comes up", []error{syscall.ETIMEDOUT, syscall.ETIMEDOUT, nil}, nil},
		{"driver comes up, refused until then", []error{syscall.ECONNREFUSED, syscall.ECONNREFUSED, nil}, nil},
		{"driver comes up, unreachable until then", []error{syscall.EHOSTUNREACH, syscall.EHOSTUNREACH, nil}, nil},
		{"no listener", []error{syscall.ECONNRESET}, syscall.ECONNREFUSED},
		{"machine is gone", []error{syscall.ENODEV}, ErrGone},
		{"other", []error{syscall.EACCES}, syscall.EACCES},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tries := 0
			tr := newKernel(t, func(context.Context) (Conn, error) {
				tries++
				if err := tc.errs[tries-1]; err != nil {
					return nil, os.NewSyscallError("connect", err)
				}
				c, other := net.Pipe()
				t.Cleanup(func() { _ = other.Close() })
				return pipeConn{c}, nil
			})
			c, err := tr.Dial(t.Context(), 7)
			if !errors.Is(err, tc.want) || tries != len(tc.errs) {
				t.Errorf("%v after %d tries, want %v", err, tries, tc.want)
			}
			must(t, tr.Close()) // ends the connection too
			if c != nil {
				if _, err := c.Read(make([]byte, 1)); err == nil {
					t.Error("the connection outlived its transport")
				}
			}
			if len(tr.open) != 0 {
				t.Errorf("%d things are left open", len(tr.open))
			}
		})
	}
}

// TestKernelDialEnds covers a guest that never starts.
func TestKernelDialEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(ctx context.Context) (Conn, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(2 * time.Second):
				return nil, syscall.ETIMEDOUT
			}
		}
		tr := newKernel(t, wait)
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := tr.Dial(ctx, 7); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 7*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		time.AfterFunc(time.Second, func() { _ = tr.Close() })
		if _, err := tr.Dial(t.Context(), 7); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial over close: %v", err)
		}
		if _, err := tr.Dial(t.Context(), 7); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial after close: %v", err)
		}
	})
}

type taker struct{ got hypervisor.Device }

func (k *taker) Attach(_ context.Context, d hypervisor.Device) error {
	k.got = d
	return nil
}

func TestKernelAttach(t *testing.T) {
	tr := newKernel(t, nil)
	file := tr.file
	vm := &taker{}
	must(t, tr.Attach(t.Context(), vm))
	want := hypervisor.VhostVsock{ID: DeviceID, CID: 42, File: file}
	same := cmp.Comparer(func(a, b *os.File) bool { return a == b })
	if diff := cmp.Diff(hypervisor.Device(want), vm.got, same); diff != "" {
		t.Error("device (-want +got):", diff)
	}
	if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Error("the file is still open: the kernel would keep a dead machine's connections")
	}
	if err := tr.Attach(t.Context(), vm); err == nil {
		t.Error("attached twice")
	}
	must(t, tr.Close())
	must(t, tr.Close())
}
