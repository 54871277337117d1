package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// short is the selection of -short: each moment once, each victim of SIGKILL
// twice.
var short = map[string]string{
	"starting":         shim.name,
	"boot":             qemu.name,
	"created":          virtiofsd.name,
	"creating service": shim.name,
	"running":          engine.name,
	"starting exec":    agent.name,
	"exec running":     shim.name,
	"output":           qemu.name,
	"exit":             engine.name,
	"exec ends":        stoppedShim.name,
	"being killed":     stoppedEngine.name,
	"deleting":         virtiofsd.name,
	"removing pod":     agent.name,
	"hibernating":      virtiofsd.name,
	"waking":           qemu.name,
	"saving":           shim.name,
	"restoring saved":  engine.name,
}

// inRound returns the victims of one round at the moment of a row. Of those that
// are stopped every second row has each, and four rounds have each at every row.
func inRound(round, row int) []victim {
	if testing.Short() {
		return slices.DeleteFunc(slices.Concat(victims, stops), func(v victim) bool { return short[moments[row].name] != v.name })
	}
	return append(slices.Clone(victims), stops[(row/2+round)%len(stops)])
}

// TestChaos plays every moment with every victim of SIGKILL, and with one of those
// that are stopped.
func TestChaos(t *testing.T) {
	turn := 0
	for round := range bed.rounds {
		for row, m := range moments {
			for _, v := range inRound(round, row) {
				turn++
				if !drawn(turn + row) {
					continue
				}
				name := fmt.Sprintf("%s/%s/%d", m.name, v.name, round+1)
				// row and round, so that a victim meets each release.
				t.Run(name, func(t *testing.T) { play(t, m, v, turn+row+round) })
			}
		}
	}
}

// drawn reports whether a scene is played: with one in two, every second victim
// at one moment, and the others at the next.
func drawn(number int) bool { return (uint64(number)+bed.seed)%uint64(bed.oneIn) == 0 }

// play plays one scene. Its number is its own, and chooses the release.
func play(t *testing.T, m moment, v victim, number int) {
	turn := number
	began := time.Now()
	if m.empty && v.bomb != "" {
		results.add(m.name, v.name, "none", 0)
		t.Skip("nothing runs in the guest yet that could kill from inside; TestNoAgent is the boot's case")
	}
	if m.saves && v.external {
		results.add(m.name, v.name, "none", 0)
		t.Skip("a machine whose share virtiofsd serves cannot be saved")
	}
	t.Cleanup(func() {
		verdict := "ok"
		if t.Failed() {
			verdict = "FAIL"
		}
		results.add(m.name, v.name, verdict, time.Since(began))
	})
	server := ""
	if v.external {
		if server = harness.DefaultVirtiofsd; !harness.HasVirtiofsd() {
			t.Skipf("%s is not installed (Debian 12: qemu-system-common)", server)
		}
	}
	if m.saves {
		turn = len(bed.releases) - 1
	}
	d := daemonWith(t, turn, server)
	if v.stays {
		configure(t, d, "", quickKill)
	}
	if m.configure != nil {
		m.configure(t, d)
	}
	ctx := within(t, d)
	s := &scene{t: t, d: d, victim: v, random: rand.New(rand.NewPCG(bed.seed, uint64(number))), tape: record(ctx, d)}
	defer s.tape.stop()
	if err := m.play(ctx, s); err != nil {
		t.Errorf("at the moment: %v", err)
	}
	s.judge(ctx)
	for _, check := range s.checks {
		if err := check(ctx); err != nil {
			t.Error(err)
		}
	}
}
