package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
	"github.com/katabox/katabox/internal/hungfs"
	"github.com/katabox/katabox/internal/intime"
)

// A directory that hangs does not hold up the end of a machine.
func TestDumpInAHungDirectory(t *testing.T) {
	dir, _ := hungfs.Mount(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	const noRoom = 1 << 60 // what is given up must leave no file when the test ends
	if _, err := makeDump(ctx, dir, noRoom); !errors.Is(err, intime.ErrUnanswered) || !strings.Contains(err.Error(), dir) {
		t.Errorf("make a dump: %v, want an error that names the directory and says that it hangs", err)
	}
}

// dumper is a QEMU that says how much memory it has, and writes what it likes into the
// dump.
type dumper struct {
	reply string // to query-memory-size-summary
	write func(io.Writer) error
	keeps bool // the pipe
}

// dump has the QEMU dump a machine of 1 MiB, which may become 4 MiB large.
func (d dumper) dump(ctx context.Context, t *testing.T, dir string) (string, error) {
	t.Helper()
	conn, server := qmptest.Pair(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		var pipe *os.File
		server.Handshake()
		server.Serve(func(r qmptest.Request) any {
			switch r.Execute {
			case "query-memory-size-summary":
				return json.RawMessage(d.reply)
			case "getfd":
				pipe = r.Files[0]
			case "dump-guest-memory":
				if err := d.write(pipe); err != nil {
					return &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: err.Error()}
				}
				if d.keeps {
					t.Cleanup(func() { _ = pipe.Close() })
				} else {
					_ = pipe.Close()
				}
			}
			return yes
		})
	}()
	mon := qmp.New(conn)
	if err := mon.Connect(); err != nil {
		t.Fatal(err)
	}
	vm := &VM{mon: mon, spec: hypervisor.Spec{MemoryMiB: 1, MaxMemoryMiB: 4, PanicDump: hypervisor.PanicDump{Dir: dir}}}
	path, err := vm.dump(ctx)
	_ = mon.Disconnect()
	<-served
	return path, err
}

func TestDump(t *testing.T) {
	dump := make([]byte, 2<<20)
	for i := range dump {
		dump[i] = byte(i >> 10)
	}
	q := dumper{reply: `{"base-memory": 1048576, "plugged-memory": 1048576}`, write: func(w io.Writer) error {
		_, err := w.Write(dump)
		return err
	}}
	path, err := q.dump(t.Context(), t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, dump) {
		t.Errorf("the dump has %d bytes, want %d: %v", len(got), len(dump), err)
	}
}

// A QEMU that was taken over, and says that it has little memory, cannot fill the disk,
// nor leave a file that is larger than the memory may be.
func TestDumpIsBounded(t *testing.T) {
	const page = 1 << 20
	for name, test := range map[string]struct {
		reply   string
		mostMiB int
	}{
		"less than it has": {`{"base-memory": 0}`, 1 + dumpExtraMiB},
		"more than it may": {`{"base-memory": 18446744073709551615}`, 4 + dumpExtraMiB},
	} {
		t.Run(name, func(t *testing.T) {
			dir, taken := t.TempDir(), 0
			q := dumper{reply: test.reply, write: func(w io.Writer) error {
				for {
					n, err := w.Write(make([]byte, page))
					if taken += n; err != nil || taken > 1<<30 {
						return err
					}
				}
			}}
			_, err := q.dump(t.Context(), t, dir)
			if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "bytes or more, want less") {
				t.Errorf("dumped: %v", err)
			}
			const inPipe = 1 << 20
			if taken < test.mostMiB<<20 || taken > test.mostMiB<<20+inPipe {
				t.Errorf("%d bytes were read, want %d MiB", taken, test.mostMiB)
			}
			if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
				t.Errorf("there are %v, %v", files, err)
			}
		})
	}
}

// A QEMU that keeps the pipe, and a refusal, end the dump too, and leave no file.
func TestDumpFails(t *testing.T) {
	refused := errors.New("not now")
	for name, test := range map[string]struct {
		q    dumper
		want string
	}{
		"keeps":   {dumper{write: func(io.Writer) error { return nil }, keeps: true}, "write dump: " + context.DeadlineExceeded.Error()},
		"refused": {dumper{write: func(io.Writer) error { return refused }}, "dump guest memory: "},
	} {
		t.Run(name, func(t *testing.T) {
			test.q.reply = `{"base-memory": 1048576}`
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			dir := t.TempDir()
			if _, err := test.q.dump(ctx, t, dir); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("dumped: %v, want %q", err, test.want)
			}
			if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
				t.Errorf("there are %v, %v", files, err)
			}
		})
	}
}

// A complete dump stays, an incomplete one does not.
func TestEndDump(t *testing.T) {
	for _, complete := range []bool{true, false} {
		file, err := makeDump(t.Context(), filepath.Join(t.TempDir(), "a", "b"), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := endDump(t.Context(), file, complete); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(file.Name()); (err == nil) != complete {
			t.Errorf("complete %v: %v", complete, err)
		}
	}
}
