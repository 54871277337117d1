package virtcontainers

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/guestfs"
)

// asleepSlowly returns a sandbox that hibernates, and whose memory is slow. It is only
// lost when it ends, without a teardown.
func asleepSlowly(t *testing.T, block time.Duration) (*Sandbox, *slept) {
	t.Helper()
	s := newQuietSandbox(t, new(tally))
	s.opts.Config = new(config.Config)
	s.opts.Config.Agent.KillTimeout = 10 * time.Second
	s.opts.Config.Agent.HealthTimeout = 30 * time.Second
	s.files = new(guestfs.Pod)
	s.stopping = true
	s.lifeCtx, s.end = context.WithCancel(s.lifeCtx)
	z, _ := sleptSlowly(t, block)
	s.sleeper = newSleeper(s)
	if err := s.sleeper.lock(t.Context(), z); err != nil {
		t.Fatal(err)
	}
	fallsAsleep(t, &s.sleeper.turnstile)
	s.watchers.Go(func() {
		select {
		case z := <-s.sleeper.wakes:
			if err := s.restore(s.lifeCtx, z); err == nil {
				s.sleeper.open()
			}
		case <-s.lifeCtx.Done():
		}
	})
	return s, z
}

// A container that got SIGKILL ends even if the memory is restored very slowly: engines
// do not end the pod before. Engines also kill execs that are slow, which ends no pod.
func TestKillWhileWakingSlowly(t *testing.T) {
	for name, test := range map[string]struct {
		exec  string
		block time.Duration
		want  string
	}{
		"container, slow enough": {"", 7 * time.Second, ""},
		"container, too slow":    {"", wakePatience - time.Second, "c1 got SIGKILL, and the guest does not run: its memory was not restored within 1m0s"},
		"exec, too slow":         {"e1", wakePatience - time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, z := asleepSlowly(t, test.block)
				p := s.containers["c1"].init
				if test.exec != "" {
					p = s.containers["c1"].execs[test.exec]
				}
				began := time.Now()
				leave, ok := p.awaitGuest()
				took := time.Since(began)
				if ok {
					leave()
				}
				s.end()
				s.watchers.Wait()
				if ok != (test.want == "") || ok && s.lost != nil || !ok && !strings.Contains(s.lost.Error(), test.want) {
					t.Errorf("awaited the guest %t after %v: %v, want %q", ok, took, s.lost, test.want)
				}
				if most := 80 * time.Second; !ok && took > most {
					t.Errorf("it took %v, want at most %v", took, most)
				}
				z.using.Wait() // longer than close waits
				if err := z.close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
