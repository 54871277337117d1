package vhostuser

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
)

// keeper is a device with a text as its state.
type keeper struct {
	*reverser
	moved chan error // of capacity 1: the last result

	mu    sync.Mutex
	state string
}

var errState = errors.New("a state that is wrong")

func newKeeper(state string) *keeper {
	return &keeper{reverser: newReverser(nil), state: state, moved: make(chan error, 1)}
}

func (k *keeper) SaveState(_ context.Context, w io.Writer) error {
	if k.state == "wrong" {
		return errState
	}
	_, err := io.WriteString(w, k.state)
	return err
}

func (k *keeper) LoadState(_ context.Context, r io.Reader) error {
	p, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if string(p) == "wrong" {
		return errState
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = string(p)
	return nil
}

func (k *keeper) StateMoved(err error) {
	select {
	case <-k.moved:
	default: // the last result was taken
	}
	k.moved <- err
}

// failed returns the reason why the last transfer failed.
func (k *keeper) failed(t *testing.T) error {
	t.Helper()
	select {
	case err := <-k.moved:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("no transfer has ended")
		return nil
	}
}

func pipes(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// raw returns a file's descriptor, in blocking mode as QEMU's.
func raw(f *os.File) int { return int(f.Fd()) }

const (
	stateSave = 0
	stateLoad = 1
)

// begin requests a transfer and returns the reply.
func begin(t *testing.T, f *vhosttest.FrontEnd, direction uint32, fds ...int) uint64 {
	t.Helper()
	if err := f.Send(vhosttest.SetDeviceStateFD, 0, vhosttest.State(direction, 0), fds...); err != nil {
		t.Fatal(err)
	}
	return replied(t, f, vhosttest.SetDeviceStateFD)
}

func replied(t *testing.T, f *vhosttest.FrontEnd, req uint32) uint64 {
	t.Helper()
	p, err := f.Receive(req)
	if err != nil || len(p) != 8 {
		t.Fatalf("reply of %d bytes: %v", len(p), err)
	}
	return value(p)
}

// value decodes a reply that is a number.
func value(p []byte) uint64 { return binary.LittleEndian.Uint64(p) }

// check asks for a transfer's result.
func check(t *testing.T, f *vhosttest.FrontEnd) uint64 {
	t.Helper()
	if err := f.Send(vhosttest.CheckDeviceState, 0, nil); err != nil {
		t.Fatal(err)
	}
	return replied(t, f, vhosttest.CheckDeviceState)
}

// saved saves a device's state as QEMU does, and returns it with the result.
func saved(t *testing.T, f *vhosttest.FrontEnd) (string, uint64) {
	t.Helper()
	r, w := pipes(t)
	if got := begin(t, f, stateSave, raw(w)); got != stateNoFD {
		t.Fatalf("reply %#x, want %#x", got, stateNoFD)
	}
	w.Close()
	p, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(p), check(t, f)
}

// loaded loads a state as QEMU does, and returns the result.
func loaded(t *testing.T, f *vhosttest.FrontEnd, state []byte) uint64 {
	t.Helper()
	r, w := pipes(t)
	if got := begin(t, f, stateLoad, raw(r)); got != stateNoFD {
		t.Fatalf("reply %#x, want %#x", got, stateNoFD)
	}
	r.Close()
	if _, err := w.Write(state); err != nil && !errors.Is(err, unix.EPIPE) {
		t.Fatal(err)
	}
	w.Close()
	return check(t, f)
}

// TestStateMoves moves a state, longer than a pipe has room for, from a device
// whose queue has stopped to another one, whose queue then goes on.
func TestStateMoves(t *testing.T) {
	text := strings.Repeat("state", 100_000)
	source, _ := serve(t, newKeeper(text))
	source.Handshake()
	q := source.NewQueue(0, 8)
	q.Start(0)
	roundTrip(t, source, q, "before")
	q.Stop()
	state, result := saved(t, source)
	if state != text || result != 0 {
		t.Fatalf("saved %d bytes of %d, result %d", len(state), len(text), result)
	}
	q.Start(1)
	if got := roundTrip(t, source, q, "on"); got != "no" {
		t.Errorf("the saved device returns %q", got)
	}
	k := newKeeper("")
	target, _ := serve(t, k)
	target.Handshake() // QEMU does parts of it later, when the queues start
	if result := loaded(t, target, []byte(state)); result != 0 || k.failed(t) != nil {
		t.Fatalf("load: %d", result)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state != text {
		t.Errorf("loaded %d bytes of %d", len(k.state), len(text))
	}
	q = target.NewQueue(0, 8)
	q.Start(0)
	if got := roundTrip(t, target, q, "after"); got != "retfa" {
		t.Errorf("the loaded device returns %q", got)
	}
}

// A device that fails says so after the transfer, and is served on.
func TestStateFails(t *testing.T) {
	k := newKeeper("wrong")
	f, _ := serve(t, k)
	if state, result := saved(t, f); state != "" || result == 0 || !errors.Is(k.failed(t), errState) {
		t.Errorf("save: %q, %d", state, result)
	}
	if result := loaded(t, f, []byte("wrong")); result == 0 || !errors.Is(k.failed(t), errState) {
		t.Errorf("load: %d", result)
	}
	if result := loaded(t, f, []byte("right")); result != 0 || k.failed(t) != nil {
		t.Errorf("another load: %d", result)
	}
	if got := check(t, f); got == 0 {
		t.Error("a result without a transfer is success")
	}
	f.Handshake()
	q := f.NewQueue(0, 8)
	q.Start(0)
	roundTrip(t, f, q, "well")
}

// A transfer is refused, and the device served on, while the guest may change
// the state, and on what is not a pipe.
func TestStateRefused(t *testing.T) {
	k := newKeeper("x")
	f, _ := serve(t, k)
	f.Handshake()
	q := f.NewQueue(0, 8)
	q.Start(0)
	refused := func(what, want string, fd int) {
		t.Helper()
		if got := begin(t, f, stateSave, fd); got&0xff == 0 || got&stateNoFD == 0 {
			t.Errorf("%s: reply %#x", what, got)
		}
		if err := k.failed(t); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, w := pipes(t)
	refused("a running queue", "is running", raw(w))
	roundTrip(t, f, q, "well")
	q.Stop()
	refused("a file", "not a pipe", f.Mem.FD())
	k.queues[0].mu.Lock()
	k.queues[0].lent.late = []usedElem{{}}
	k.queues[0].mu.Unlock()
	refused("a late chain", "too late", raw(w))
	k.queues[0].mu.Lock()
	k.queues[0].lent.late = nil
	k.queues[0].mu.Unlock()
	if state, result := saved(t, f); state != "x" || result != 0 {
		t.Errorf("then: %q, %d", state, result)
	}
}

// A front end that gives up closes its end of the pipe, or begins something
// else. No transfer outlives that.
func TestStateGivenUp(t *testing.T) {
	for what, giveUp := range map[string]func(t *testing.T, f *vhosttest.FrontEnd, r, w *os.File){
		"its end is closed": func(t *testing.T, f *vhosttest.FrontEnd, r, w *os.File) {
			r.Close()
			if check(t, f) == 0 {
				t.Error("a save without a reader succeeds")
			}
		},
		"another transfer": func(t *testing.T, f *vhosttest.FrontEnd, _, _ *os.File) {
			if result := loaded(t, f, []byte("short")); result != 0 {
				t.Errorf("the second transfer: %d", result)
			}
		},
		"a queue is started": func(t *testing.T, f *vhosttest.FrontEnd, _, _ *os.File) {
			f.Handshake()
			q := f.NewQueue(0, 8)
			q.Start(0)
			roundTrip(t, f, q, "well")
		},
		"the connection ends": func(_ *testing.T, f *vhosttest.FrontEnd, _, _ *os.File) { f.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			k := newKeeper(strings.Repeat("long", 1<<18))
			f, ended := serve(t, k)
			r, w := pipes(t)
			if got := begin(t, f, stateSave, raw(w)); got != stateNoFD {
				t.Fatalf("reply %#x", got)
			}
			w.Close()
			giveUp(t, f, r, w)
			_ = k.failed(t)
			f.Close()
			if err := await(t, ended); err != nil {
				t.Error(err)
			}
		})
	}
}

// The end of Serve's context ends a transfer whose result the front end waits
// for.
func TestStateEndsWithContext(t *testing.T) {
	k := newKeeper("")
	s := &server{keeper: k, dev: k}
	r, _ := pipes(t)
	fd, err := unix.Dup(raw(r))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.beginTransfer(true, &message{fds: []int{fd}}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	s.ended = ended
	close(ended)
	if reply, err := s.checkDeviceState(nil); err != nil || bytes.Equal(reply, encodeU64(0)) {
		t.Errorf("reply %x, %v", reply, err)
	}
	if err := k.failed(t); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("load: %v", err)
	}
}

// hurried notes how long it may take.
type hurried struct {
	*keeper
	limit chan time.Duration
}

func (h hurried) SaveState(ctx context.Context, _ io.Writer) error { return h.LoadState(ctx, nil) }

func (h hurried) LoadState(ctx context.Context, _ io.Reader) error {
	at, _ := ctx.Deadline()
	h.limit <- time.Until(at)
	return nil
}

// A save ends before QEMU's user gives up, which waits for 30 s.
func TestStateIsBounded(t *testing.T) {
	for load, most := range map[bool]time.Duration{false: 25 * time.Second, true: 2 * time.Minute} {
		h := hurried{newKeeper(""), make(chan time.Duration, 1)}
		s := &server{keeper: h, dev: h}
		r, w := pipes(t)
		end := w
		if load {
			end = r
		}
		fd, err := unix.Dup(raw(end))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.beginTransfer(load, &message{fds: []int{fd}}); err != nil {
			t.Fatal(err)
		}
		if limit := <-h.limit; limit <= 0 || limit > most {
			t.Errorf("load %v: it may take %v, want at most %v", load, limit, most)
		}
		s.endTransfer()
	}
}

func TestStateTooLong(t *testing.T) {
	r, w := pipes(t)
	in, out := &bounded{pipe: r, left: 4}, &bounded{pipe: w, left: 6}
	if n, err := out.Write([]byte("longer")); n != 6 || err != nil {
		t.Errorf("write: %d, %v", n, err)
	}
	if _, err := out.Write([]byte("s")); !errors.Is(err, errStateTooLong) {
		t.Errorf("write beyond the limit: %v", err)
	}
	if n, err := in.Read(make([]byte, 10)); n != 0 || !errors.Is(err, errStateTooLong) {
		t.Errorf("read beyond the limit: %d, %v", n, err)
	}
}

// What is malformed ends the connection, as does a request to log writes.
func TestStateMalformed(t *testing.T) {
	_, w := pipes(t)
	fd := raw(w)
	for _, tc := range []struct {
		name    string
		dev     Device
		req     uint32
		payload []byte
		fds     []int
		want    string
	}{
		{"no descriptor", newKeeper(""), vhosttest.SetDeviceStateFD, vhosttest.State(0, 0), nil, "0 descriptors"},
		{"two descriptors", newKeeper(""), vhosttest.SetDeviceStateFD, vhosttest.State(0, 0), []int{fd, fd}, "2 descriptors"},
		{"direction", newKeeper(""), vhosttest.SetDeviceStateFD, vhosttest.State(2, 0), []int{fd}, "direction 2"},
		{"phase", newKeeper(""), vhosttest.SetDeviceStateFD, vhosttest.State(0, 1), []int{fd}, "phase 1"},
		{"short", newKeeper(""), vhosttest.SetDeviceStateFD, []byte{0}, []int{fd}, "payload of 1 bytes"},
		{"not offered", newReverser(nil), vhosttest.SetDeviceStateFD, vhosttest.State(0, 0), []int{fd}, "not offered"},
		{"check not offered", newReverser(nil), vhosttest.CheckDeviceState, nil, nil, "not offered"},
		{"log not offered", newReverser(nil), vhosttest.SetLogBase, nil, nil, "not offered"},
		{"log", newKeeper(""), vhosttest.SetLogBase, make([]byte, 16), []int{fd}, "stop the machine"},
		{"log's event", newKeeper(""), vhosttest.SetLogFD, nil, []int{fd}, "stop the machine"},
		{"log of writes", newKeeper(""), vhosttest.SetFeatures, vhosttest.U64(featLogAll), nil, "stop the machine"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, ended := serve(t, tc.dev)
			if f.Set(tc.req, tc.payload, tc.fds...) {
				t.Error("the request succeeded")
			}
			if err := await(t, ended); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("serve: %v, want %q", err, tc.want)
			}
		})
	}
}

// Only a device that keeps its state offers what QEMU needs to migrate it.
func TestStateOffered(t *testing.T) {
	for dev, want := range map[Device]bool{newKeeper(""): true, newReverser(nil): false} {
		t.Run(fmt.Sprintf("%T", dev), func(t *testing.T) {
			f, _ := serve(t, dev)
			features := value(f.Get(vhosttest.GetFeatures, nil))
			protocols := value(f.Get(vhosttest.GetProtocolFeatures, nil))
			if got := features&featLogAll != 0 && protocols&keeperFeatures == keeperFeatures; got != want {
				t.Errorf("features %#x, protocol features %#x", features, protocols)
			}
		})
	}
}
