package config

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCountCPUs(t *testing.T) {
	for list, want := range map[string]int{"0\n": 1, "0-3\n": 4, "0-3,7,9-10": 7, "8-255": 248, "": 0, "3-1": 0, "0-": 1, "-1": 0, "0,": 0, "a": 0} {
		got, err := countCPUs(list)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v; want %d", list, got, err, want)
		}
	}
}

// oneCPUEnv is set in a process of this test that may use one CPU only.
const oneCPUEnv = "KATABOX_TEST_ONE_CPU"

// A process that may use one of the host's CPUs, as one that a pod's shim starts may,
// loads the same configuration as others.
func TestConfigWithinCPUSet(t *testing.T) {
	if os.Getenv(oneCPUEnv) != "" {
		cfg, err := Load("testdata/configuration-qemu.toml")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%d of %d\n", runtime.NumCPU(), cfg.Hypervisor.MaxVCPUs)
		return
	}
	want := fmt.Sprintf("1 of %d\n", min(HostCPUs(), maxVCPUs))
	if want == "1 of 1\n" {
		t.Skip("the host has one CPU")
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if may.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestConfigWithinCPUSet$")
	cmd.Env = append(os.Environ(), oneCPUEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("%s, %v; want %q", out, err, want)
	}
}
