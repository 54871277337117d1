package qemu

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/katabox/katabox/hypervisor"
)

// Two measurements agree, though the second begins later.
func TestTSCRate(t *testing.T) {
	m := newTSCMeter("/proc/cpuinfo")
	if !m.usable {
		t.Skip("the CPU's time stamp counter has no constant rate")
	}
	first := m.kHz()
	time.Sleep(minTSCSpan)
	second := newTSCMeter("/proc/cpuinfo").kHz()
	if first < 500_000 || first > 10_000_000 {
		t.Errorf("%d kHz is not a CPU's rate", first)
	}
	if diff := float64(first)/float64(second) - 1; diff > 0.001 || diff < -0.001 {
		t.Errorf("measured %d and %d kHz", first, second)
	}
}

// A machine without KVM says at which rate its clocks run, one with KVM does not.
func TestLayoutHasTSCRate(t *testing.T) {
	m := New(Options{})
	vm := launch(t, testSpec(t, testKernel(t, "", idle)))
	layout, err := vm.Layout(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if want := m.guestTSC(vm.spec); (layout.TSCKHz == 0) != (want == 0) {
		t.Errorf("the layout has %d kHz, the host %d", layout.TSCKHz, want)
	}
	vm.spec.Accel = hypervisor.AccelKVM
	if got := m.guestTSC(vm.spec); got != 0 {
		t.Errorf("with KVM it has %d kHz", got)
	}
}

// Some virtual machines hide RDTSCP from their guests; the rate is as good there.
func TestTSCRateWithoutRDTSCP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cpuinfo")
	if err := os.WriteFile(path, []byte("flags\t\t: fpu tsc constant_tsc nonstop_tsc lm\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if m := newTSCMeter(path); !m.usable || m.kHz() == 0 {
		t.Errorf("%+v", m)
	}
}

func TestTSCWithoutConstantRate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cpuinfo")
	if err := os.WriteFile(path, []byte("flags\t\t: fpu tsc rdtscp lm\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, path + "-none"} {
		if khz := newTSCMeter(p).kHz(); khz != 0 {
			t.Errorf("%s: %d kHz", p, khz)
		}
	}
}
