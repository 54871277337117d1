package stdio

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
)

// What a full file does not take is lost, and the process goes on. Once there is room,
// output is logged again.
func TestFileThatWasFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	i := newIO(t, Paths{Stdout: "file://" + path})
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	out, process := pair(t)
	if err := i.Connect(virtcontainers.Conns{Stdout: out}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	var passed uint64
	write := func(text string) {
		t.Helper()
		if _, err := process.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		passed += uint64(len(text))
		i.out.await(t.Context(), passed, true)
	}
	began := time.Now()
	write("full, so this is lost\n")
	write("this too\n")
	if took := time.Since(began); took > stalled {
		t.Errorf("lost output held the process up for %v", took)
	}
	restore()
	write("room again\n")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(data); !strings.HasPrefix(got, "full") || strings.Contains(got, "this too") || !strings.HasSuffix(got, "room again\n") {
		t.Errorf("the file holds %q", got)
	}
}

// A container that makes and takes the room for its output itself does not fill the log.
func TestWarningsOfAFullFileAreFew(t *testing.T) {
	logged := test.NewGlobal()
	defer logged.Reset()
	synctest.Test(t, func(t *testing.T) {
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		o := &outlet{fifo: file}
		for range 1000 {
			o.note(0, unix.ENOSPC, 2)
			o.note(1, nil, 0)
		}
		if n := len(logged.AllEntries()); n != 2 {
			t.Errorf("%d lines", n)
		}
		time.Sleep(warnPause)
		o.note(0, unix.ENOSPC, 2)
		o.note(1, nil, 0)
		if last := logged.LastEntry(); len(logged.AllEntries()) != 4 || !strings.Contains(last.Message, "2000 bytes were lost") {
			t.Errorf("%d lines, the last %q", len(logged.AllEntries()), last.Message)
		}
	})
}
