package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// expectEnv makes the suites refuse a pod with another accelerator.
var expectEnv = []string{harness.EnvAccel + "=kvm"}

// suiteEnv returns the environment that all suites get.
func (b *bed) suiteEnv() []string {
	return append(slices.Clone(expectEnv), "KATABOX_TEST_PROBE="+b.probe())
}

// suite is a part of a package's tests.
type suite struct {
	name string
	// program is the name of the suite whose test program this one uses, if
	// that is another.
	program string
	// pkg is the package's folder, relative to the checkout.
	pkg string
	// tests are all that run; each must exist and must not be skipped.
	tests []string
	// env is added to its environment.
	env []string
	// timeout bounds the suite. It is several times what an idle machine of
	// two cores takes.
	timeout time.Duration
}

// suites are the tests that are worth a nested machine's time: each pod costs
// about ten seconds on an idle machine of two cores (a few tenths on a real KVM
// host). Tests that do not depend on the accelerator, vsock, network back end
// or version of cgroups run outside.
var suites = []suite{
	{
		name: "vsock", pkg: "hypervisor/vsock", timeout: time.Minute,
		tests: []string{"TestTakenCIDIsSkipped", "TestKernelBindsReserved"},
	},
	{
		name: "inside", pkg: "tests/kvmhost/inside", timeout: 10 * time.Minute,
		tests: []string{
			"TestCheckFindsKVM",      // kata-runtime check and env
			"TestFirstPod",           // and its metrics, of cgroup v2
			"TestProcessesClaimCIDs", // 50 simultaneously
			"TestPodsClaimCIDs",      // two pods simultaneously
			"TestStrangersAreTurnedAway",
			"TestVhostIsChargedToThePod", // its threads are the kernel's before Linux 6.4
		},
	},
	{
		name: "containerd", pkg: "tests/containerd", timeout: 15 * time.Minute,
		env: []string{"KATABOX_TEST_CONTAINERD=2.4"},
		tests: []string{
			"TestExitCodeOfInit", "TestExitCodeOfExec", // codes
			"TestStdinEndsWhenClosed", "TestTerminalIsResized", "TestShellOnATerminal", // streams through vhost-vsock
			"TestKilledVMM", "TestKilledShim", // the kernel's vsock reports their ends
			"TestContainersHaveNoVsock",                      // vhost-vsock would let them reach the host's listeners
			"TestQEMUIsNobody",                               // with /dev/kvm, vhost-vsock and vhost-net in its jail
			"TestHibernation", "TestHibernationFromTemplate", // KVM's mappings of the memory, and the kernel's vhost-vsock
			"TestCheckpoint",                                          // the same, and its vsock is plugged again
			"TestDynamicSizing",                                       // CPUs are added and, with KVM only, removed
			"TestPodCgroupWithoutRoom", "TestPodCgroupCountsTheGuest", // cgroup v2's paths and counters
			"TestPodCgroupWithoutPath", "TestPodCgroupHoldsTheMachine", // v2's bounds, and KVM's smaller overhead
			"TestPodCgroupRegainsControllers", // as below systemd
		},
	},
	{
		name: "cri", pkg: "tests/cri", timeout: 10 * time.Minute,
		tests: []string{
			"TestCrictlPodLimit", "TestCrictlPodThreads", // v2's limits of the kubelet's cgroup
			"TestCrictlPodHugepages", // and its controller hugetlb
		},
	},
	{
		name: "network", pkg: "tests/network", timeout: 10 * time.Minute,
		tests: []string{"TestVhostNet", "TestMetricsCountTraffic"},
	},
}

// smoke is the least that proves that pods run on a KVM host: one pod, with an
// exec and its exit code.
var smoke = []suite{{
	name: "smoke", pkg: "tests/kvmhost/inside", timeout: 6 * time.Minute, tests: []string{"TestFirstPod"},
}}

// chosen returns the suite called only, or all suites if only is "".
func chosen(all []suite, only string) ([]suite, error) {
	if only == "" || len(all) == 0 {
		return all, nil
	}
	var names []string
	for _, s := range all {
		if s.name == only {
			return []suite{s}, nil
		}
		names = append(names, s.name)
	}
	return nil, fmt.Errorf("-suite=%s: want one of %s", only, strings.Join(names, ", "))
}

// importPath returns the package's path for the go command.
func (s suite) importPath() string { return "./" + path.Clean(s.pkg) }

// args returns the test program's command line.
func (s suite) args(program string) []string {
	return []string{
		program, "-test.v", "-test.count=1", "-test.timeout=" + s.timeout.String(),
		"-test.run=^(" + strings.Join(s.tests, "|") + ")$",
	}
}

// judge compares the tests that ran with those that should have. It returns
// what is wrong, and the tests that are worth a second try.
func (s suite) judge(r *report, code int) (faults, again []string) {
	for _, name := range s.tests {
		result, ok := r.results[name]
		switch {
		case !ok:
			faults, again = append(faults, name+" did not run"), append(again, name)
		case result == "FAIL":
			faults, again = append(faults, name+": FAIL"), append(again, name)
		case result != "PASS":
			faults = append(faults, name+": "+result)
		}
	}
	for _, name := range r.skipped {
		if !slices.Contains(s.tests, name) {
			faults = append(faults, name+": SKIP")
		}
	}
	if code != 0 && len(faults) == 0 {
		faults = append(faults, fmt.Sprintf("exit code %d", code))
	}
	return faults, again
}

// second returns the suite for a second try of tests.
func (s suite) second(tests []string) suite {
	s.name, s.program, s.tests = s.name+"-second", s.name, tests
	return s
}
