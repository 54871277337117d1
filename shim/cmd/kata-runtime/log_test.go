package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/katabox/katabox/shim/journal"
	"github.com/katabox/katabox/shim/management"
	"github.com/katabox/katabox/shim/monitor"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/prom"
)

// somethingLogged is a journal with two lines, the second from a hostile guest.
func somethingLogged() *journal.Journal {
	logger, kept := logrus.New(), journal.New()
	logger.SetOutput(io.Discard)
	logger.AddHook(kept)
	logger.WithFields(logrus.Fields{"sandbox": "p1", "container": "c1", "error": errors.New("no way")}).Warn("could not do it")
	logger.WithFields(logrus.Fields{"sandbox": "p1", "source": "agent", "x": "1\x1b[2J", "n": 1 << 60}).Info("a\nlevel=error forged")
	return kept
}

func TestLogCommand(t *testing.T) {
	h := withRecords(t, false)
	out, errs, code := call(t, h, "log", "p1")
	want := regexp.MustCompile(`^\S+ warning shim    could not do it container=c1 error="no way"
\S+ info    agent   "a\\nlevel=error forged" n=1152921504606846976 x=1\\x1b\[2J
$`)
	if code != 0 || errs != "" || !want.MatchString(out) {
		t.Errorf("%d, %q, %s", code, errs, out)
	}
	out, errs, code = call(t, h, "log", "--json", "p1")
	if code != 0 || errs != "" || strings.Count(out, "\n") != 2 || !strings.HasPrefix(out, `{"seq":1,"container":"c1","error":"no way","level":"warning",`) {
		t.Errorf("%d, %q, %s", code, errs, out)
	}
	if out, errs, code := call(t, h, "log", "--console", "p1"); code != 0 || errs != "" || out != "the guest's console\n" {
		t.Errorf("%d, %q, %s", code, errs, out)
	}
	for args, want := range map[string]string{"": "want one pod's id", "p1 p2": "want one pod's id", "other": "no pod of that id runs", "--console -f p1": "leave out", "x\x1b[2J": `find sandbox x\x1b[2J: no pod`} {
		if _, errs, code := call(t, h, append([]string{"log"}, strings.Fields(args)...)...); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%q: %d, %q, want %q", args, code, errs, want)
		}
	}
}

// A log is followed until its pod ends.
func TestFollowLog(t *testing.T) {
	h := withRecords(t, false)
	owner := persist.Owner{Namespace: "test"}
	record, err := persist.Create(h.records, owner, "p3")
	if err != nil {
		t.Fatal(err)
	}
	self, err := monitor.Find(h.records, "p1")
	if err != nil {
		t.Fatal(err)
	}
	shim, err := persist.Identify(self.Shim)
	if err == nil {
		err = record.Update(func(r *persist.Record) { r.Shim = shim })
	}
	if err != nil {
		t.Fatal(err)
	}
	logger, kept := logrus.New(), journal.New()
	logger.SetOutput(io.Discard)
	logger.AddHook(kept)
	logger.Info("first")
	server, err := management.Listen(t.Context(), filepath.Join(h.records, owner.Name("p3")),
		management.Source{Sandbox: onePod{}, Calls: new(prom.Durations), Log: kept})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := monitor.Find(h.records, "p3")
	if err != nil {
		t.Fatal(err)
	}
	lines, followed := make(chan string), make(chan error)
	go func() {
		followed <- h.log(context.Background(), pod, true, func(l monitor.LogLine) error {
			lines <- l.Message
			return nil
		})
	}()
	for _, want := range []string{"first", "second", "third"} {
		if want != "first" {
			logger.Info(want)
		}
		if got := <-lines; got != want {
			t.Errorf("line %q, want %q", got, want)
		}
	}
	if err := record.Remove(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(server.Close(), <-followed); err != nil {
		t.Error(err)
	}
}
