package sizing

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// What a pod's cgroups have lost is set again also while the machine does not run, which
// may be for days.
func TestSettingsAreRegainedAsleep(t *testing.T) {
	p, _ := chargedPod(t, limitedCgroup(t, 3000))
	p.opts.EnterAwake = func(context.Context) (func(), error) { return nil, errors.New("it sleeps") }
	limits := func() (all []string) {
		for _, dir := range p.cgroup.Dirs() {
			for _, file := range []string{"/memory.limit_in_bytes", "/memory.max"} {
				if text, err := os.ReadFile(dir + file); err == nil {
					all = append(all, string(text))
				}
			}
		}
		return all
	}
	want := limits()
	if err := p.cgroup.SetBound(hostcgroup.Bound{Memory: 2 * p.bounded}); err != nil {
		t.Fatal(err)
	}
	if len(want) == 0 || limits()[0] == want[0] {
		t.Fatalf("the bounds are %q", want)
	}
	if err := p.setAgain(t.Context()); err != nil {
		t.Errorf("without pinned vCPUs: %v", err)
	}
	for i, got := range limits() {
		if got != want[i] {
			t.Errorf("a bound is %s, want %s", got, want[i])
		}
	}
	p.opts.Config.Runtime.PinVCPUs = true
	if err := p.setAgain(t.Context()); err == nil {
		t.Error("the vCPUs of a machine that does not run were pinned")
	}
}
