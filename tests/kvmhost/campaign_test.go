package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/tests/kvmhost/wire"
)

// scripted is a host that does what its script says for each test: "pass",
// "fail" or "die".
type scripted struct {
	script map[string]string
	ran    *[]string
}

func (h scripted) runSuite(_ context.Context, s suite) (*report, int, error) {
	r, code := newReport(io.Discard), 0
	for _, test := range s.tests {
		*h.ran = append(*h.ran, test)
		fmt.Fprintf(r, "=== RUN   %s\n", test)
		switch h.script[test] {
		case "die":
			return r, 0, fmt.Errorf("suite %s: %w: EOF", s.name, errDied)
		case "fail":
			code = 1
			fmt.Fprintf(r, "--- FAIL: %s (0.00s)\n", test)
		default:
			fmt.Fprintf(r, "--- PASS: %s (0.00s)\n", test)
		}
	}
	return r, code, nil
}

func (scripted) stop(context.Context) error { return nil }

// play runs suites on machines with these scripts, one after the other.
func play(t *testing.T, scripts ...map[string]string) (c *campaign, ran []string) {
	t.Helper()
	booted := 0
	boot := func(context.Context) (host, error) {
		booted++
		script := scripts[min(booted, len(scripts))-1]
		if script == nil {
			return nil, fmt.Errorf("boot: %w", errDied)
		}
		ran = append(ran, fmt.Sprintf("machine%d", booted))
		return scripted{script: script, ran: &ran}, nil
	}
	c = newCampaign(boot, []suite{{name: "one", tests: []string{"A", "B"}}, {name: "two", tests: []string{"C"}}})
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, ran
}

func TestCampaignGoesOnAfterADeath(t *testing.T) {
	c, ran := play(t, map[string]string{"B": "die"}, nil, map[string]string{})
	if diff := cmp.Diff([]string{"machine1", "A", "B", "machine3", "B", "C"}, ran); diff != "" {
		t.Errorf("ran (-want +got):\n%s", diff)
	}
	if c.verdict(false) != 0 || c.died != 2 || c.ran() != 3 {
		t.Errorf("verdict %d, %d deaths, %d ran", c.verdict(false), c.died, c.ran())
	}
}

func TestCampaignEnds(t *testing.T) {
	c, ran := play(t, map[string]string{"B": "die"})
	if c.died != maxMachines || c.ran() != 1 || len(ran) != 1+2*maxMachines {
		t.Errorf("%d deaths, %d results, ran %v", c.died, c.ran(), ran)
	}
	if c.verdict(false) == 0 || c.verdict(true) != 0 {
		t.Error("tests that did not run: want a failure, unless that is fine")
	}
	var events strings.Builder
	c.printEvents(&events, "it died")
	for _, want := range []string{
		`{"Action":"pass","Package":"kvmhost/one","Test":"A"}`, `{"Action":"skip","Package":"kvmhost/one","Test":"B"}`,
		`"Test":"B","Output":"    it died\n"`, `{"Action":"pass","Package":"kvmhost/two"}`,
	} {
		if !strings.Contains(events.String(), want) {
			t.Errorf("events lack %s:\n%s", want, events.String())
		}
	}
}

// A test that fails twice has failed, however fragile the machine.
func TestCampaignFails(t *testing.T) {
	c, ran := play(t, map[string]string{"A": "fail", "C": "die"}, map[string]string{})
	if diff := cmp.Diff([]string{"machine1", "A", "B", "A", "C", "machine2", "C"}, ran); diff != "" {
		t.Errorf("ran (-want +got):\n%s", diff)
	}
	if c.verdict(true) == 0 || c.results[[2]string{"one", "A"}] != "A: FAIL" {
		t.Errorf("verdict %d, results %v", c.verdict(true), c.results)
	}
	var events strings.Builder
	c.printEvents(&events, "")
	if !strings.Contains(events.String(), `{"Action":"fail","Package":"kvmhost/one","Test":"A"}`) {
		t.Errorf("events:\n%s", events.String())
	}
}

// wired returns a machine whose port is a pipe, and the pipe's other end.
func wired(t *testing.T) (*machine, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	return &machine{port: ours, frames: bufio.NewReader(ours), silence: silence}, theirs
}

func TestSilenceIsDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, guest := wired(t)
		go func() {
			for range 30 { // five minutes of heartbeats
				time.Sleep(wire.BeatPeriod)
				if wire.Write(guest, wire.KindBeat, nil) != nil {
					return
				}
			}
		}()
		began := time.Now()
		_, _, err := m.next(t.Context())
		if !errors.Is(err, errDied) || time.Since(began) != 30*wire.BeatPeriod+silence {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestEndOfThePortIsDeath(t *testing.T) {
	m, guest := wired(t)
	_ = guest.Close()
	if _, _, err := m.next(t.Context()); !errors.Is(err, errDied) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m, _ = wired(t)
	if _, _, err := m.next(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, errDied) {
		t.Errorf("called off: %v", err)
	}
}
