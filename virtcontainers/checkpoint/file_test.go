package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

var testRecord = Record{
	Created:   time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC),
	Machine:   Machine{VMM: "10.0.2", Description: []string{"-smp", "1"}, Layout: hypervisor.Layout{Devices: map[string]hypervisor.PCIPath{"rng": "01/02"}, VCPUs: 1}},
	Container: Container{ID: "c", PID: 17, Mounts: map[string]string{"/": "/run/share/c/rootfs"}},
}

// write makes a file with that state.
func write(t testing.TB, key Key, state []byte) []byte {
	t.Helper()
	var file openBuffer
	w, err := Create(&file, key, testRecord)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, bytes.NewReader(state)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if file.closed {
		t.Error("the file was closed")
	}
	return file.Bytes()
}

type openBuffer struct {
	bytes.Buffer
	closed bool
}

func (b *openBuffer) Close() error {
	b.closed = true
	return nil
}

// testState is larger than a block of any layer.
func testState() []byte {
	state := make([]byte, 5<<20)
	for i := range len(state) / 2 { // the rest is zeros
		state[i] = byte(rand.Uint32())
	}
	return state
}

func TestRoundTrip(t *testing.T) {
	for name, key := range map[string]Key{"plain": nil, "sealed": Key("secret")} {
		t.Run(name, func(t *testing.T) {
			state := testState()
			file := write(t, key, state)
			if visible := bytes.Contains(file, []byte("/run/share/c/rootfs")); visible != (key == nil) {
				t.Errorf("the record is readable in the file: %v", visible)
			}
			r, err := Open(bytes.NewReader(file), key)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(r.Record, testRecord) {
				t.Errorf("record %+v, want %+v", r.Record, testRecord)
			}
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, state) {
				t.Errorf("%d bytes of state, %v, want the %d written", len(got), err, len(state))
			}
		})
	}
}

func TestOtherKeys(t *testing.T) {
	for _, tt := range []struct{ with, without Key }{{nil, Key("a")}, {Key("a"), nil}, {Key("a"), Key("b")}} {
		_, err := Open(bytes.NewReader(write(t, tt.with, nil)), tt.without)
		if !errdefs.IsFailedPrecondition(err) {
			t.Errorf("written with %q, read with %q: %v", tt.with, tt.without, err)
		}
	}
}

// Each change of an encrypted file is noticed, and each truncation of any.
func TestDamage(t *testing.T) {
	state := testState()
	readAll := func(file []byte, key Key) error {
		r, err := Open(bytes.NewReader(file), key)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		return err
	}
	file := write(t, Key("a"), state)
	for range 50 {
		at := rand.IntN(len(file))
		file[at] ^= 1
		if err := readAll(file, Key("a")); err == nil {
			t.Errorf("a change of byte %d of %d was not noticed", at, len(file))
		}
		file[at] ^= 1
	}
	for _, key := range []Key{nil, Key("a")} {
		file := write(t, key, state)
		for range 50 {
			n := rand.IntN(len(file))
			if err := readAll(file[:n], key); err == nil && key != nil {
				t.Errorf("a truncation to %d of %d bytes was not noticed", n, len(file))
			}
		}
	}
	if err := readAll([]byte("something else that is longer than the head of a file, by far"), nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("another file: %v", err)
	}
}

// The file is its caller's.
func TestCloseLeavesFile(t *testing.T) {
	for name, key := range map[string]Key{"plain": nil, "sealed": Key("secret")} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), File))
			if err != nil {
				t.Fatal(err)
			}
			w, err := Create(f, key, testRecord)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			if err := f.Close(); err != nil {
				t.Errorf("it was closed: %v", err)
			}
		})
	}
}

func TestFailingDisk(t *testing.T) {
	full := errors.New("no space")
	if _, err := Create(failing{full}, nil, testRecord); !errors.Is(err, full) {
		t.Errorf("create: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestCheckMachine(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Machine)
		want   string
	}{
		"same":    {func(*Machine) {}, ""},
		"version": {func(m *Machine) { m.VMM = "9.0" }, "10.0.2"},
		"cpu":     {func(m *Machine) { m.CPU = "model name : A\n" }, "another CPU"},
		"changed": {func(m *Machine) { m.Description = []string{"-smp", "2"} }, `its machine has -smp "1", this one "2"`},
		"more":    {func(m *Machine) { m.Description = []string{"-smp", "1", "-bios"} }, "-bios"},
		"less":    {func(m *Machine) { m.Description = []string{"-smp"} }, `"1"`},
	} {
		t.Run(name, func(t *testing.T) {
			has := testRecord.Machine
			tt.change(&has)
			err := testRecord.Machine.Check(has)
			if tt.want == "" && err == nil {
				return
			}
			if !errdefs.IsFailedPrecondition(err) || !bytes.Contains([]byte(err.Error()), []byte(tt.want)) {
				t.Errorf("%v, want one with %q", err, tt.want)
			}
		})
	}
}

// Without KVM the guest's clocks run at the rate of the saved machine's host.
func TestCheckTSC(t *testing.T) {
	for _, tt := range []struct {
		saved, has uint64
		fits       bool
	}{
		{2_000_000, 2_000_000, true}, {2_000_000, 2_001_000, true}, {2_001_000, 2_000_000, true},
		{2_000_000, 3_000_000, false}, {3_000_000, 2_000_000, false}, {2_000_000, 2_003_000, false},
		{0, 3_000_000, true}, {2_000_000, 0, true}, {0, 0, true},
	} {
		saved, has := testRecord.Machine, testRecord.Machine
		saved.Layout.TSCKHz, has.Layout.TSCKHz = tt.saved, tt.has
		err := saved.Check(has)
		if tt.fits && err != nil {
			t.Errorf("%d on %d kHz: %v", tt.saved, tt.has, err)
		}
		rates := fmt.Sprintf("runs at %d kHz, this one's at %d kHz", tt.saved, tt.has)
		if !tt.fits && (!errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), rates)) {
			t.Errorf("%d on %d kHz: %v", tt.saved, tt.has, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(write(f, nil, []byte("state")), false)
	f.Add(write(f, Key("a"), []byte("state")), true)
	f.Fuzz(func(t *testing.T, file []byte, keyed bool) {
		var key Key
		if keyed {
			key = Key("a")
		}
		r, err := Open(bytes.NewReader(file), key)
		if err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(r, 1<<24))
		}
	})
}
