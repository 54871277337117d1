package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The tiers. Each has the suites of the ones before it, some with more tests.
const (
	tierQuick = "quick" // make test
	tierAll   = "all"   // make test-all, and CI
)

var tiers = []string{tierQuick, tierAll}

// Host resources that suites use one at a time.
const (
	// goTool is the right to write bin and build.
	goTool = "bin and build"
	// crowd is room for many machines that boot simultaneously.
	crowd = "room for a crowd"
	// debian13 is the other release's root file system.
	debian13 = "Debian 13"
	// critestPorts are 12000 to 12003, which the conformance suite binds.
	critestPorts = "ports 12000 to 12003"
	// cni is for suites of tests/network.
	cni = "networks of plugins"
)

// Groups of suites of which a run has one.
const (
	// manyPods are those that start pods until something grows or is left.
	manyPods = "many pods"
	// otherHosts are those with another release or file server than most hosts have.
	otherHosts = "other hosts"
)

// What the suites need, by the name of the suite that makes it.
const (
	needBuild      = "build"      // the host's programs, the guest's image
	needContainerd = "containerd" // the 2.x release
	needCRITools   = "critools"   // crictl, critest, runc
	needNerdctl    = "nerdctl"
	needClient     = "clientsuite"
	needQEMU       = "qemu" // one that can save a machine, and runs several CPUs well
)

var engines = []string{needBuild, needContainerd}

// compiled is for suites that build the same programs elsewhere. Beside the first build
// they would compile everything again: Go's cache has only what is done.
var compiled = []string{needBuild}

// saving is what suites need that have checkpoints, or emulate a host.
var saving = append([]string{needQEMU}, engines...)

// table returns the suites of a tier, in the order in which they start if
// nothing delays them; packages are all that have tests. A new suite is a new
// row here.
func table(root, tier string, packages []string) ([]suite, error) {
	if !slices.Contains(tiers, tier) {
		return nil, fmt.Errorf("-tier %s: want one of %s", tier, strings.Join(tiers, ", "))
	}
	tests := map[string][]testFunc{}
	for _, name := range []string{"containerd", "cri", "network"} {
		var err error
		if tests[name], err = testsOf(filepath.Join(root, "tests", name)); err != nil {
			return nil, err
		}
	}
	rows := append(builds(), units(tier, packages)...)
	if tier == tierQuick {
		return append(rows, quickMachines()...), nil
	}
	return append(rows, allMachines(tests)...), nil
}

// builds returns the suites that make what the others need.
func builds() []suite {
	uses := []string{goTool}
	return []suite{
		{name: needBuild, command: []string{"make", "build", "guest-image", "guest-image-debug", "guest-image-iptables"}, uses: uses, atOnce: true, timeout: 15 * time.Minute},
		{name: needContainerd, command: []string{"make", "containerd"}, uses: uses, atOnce: true, timeout: 15 * time.Minute},
		{name: needCRITools, command: []string{"make", "critools"}, uses: uses, atOnce: true, timeout: 15 * time.Minute},
		{name: needQEMU, command: []string{"make", "qemu"}, uses: uses, atOnce: true, timeout: 10 * time.Minute},
		{name: "fmt", command: []string{"make", "fmt"}, once: true, timeout: 5 * time.Minute},
		{name: "vet", command: []string{"make", "vet"}, once: true, timeout: 15 * time.Minute},
	}
}

// booting are the packages whose own tests boot machines. There the race
// detector would add nothing but time to what QEMU does.
var booting = []string{"./guest-image", "./hypervisor/qemu", "./hypervisor/vsock", "./agent/guesttest"}

// apart are the packages whose tests have separate rows.
var apart = append(
	[]string{"./tests/containerd", "./tests/isulad", "./tests/chaos", "./tests/network", "./tests/cri", "./tests/engines", "./tests/run", "./tests/oci", "./tests/client", "./tests/hostile", "./tests/soak", "./tests/upgrade"},
	elsewhere...,
)

// elsewhere are the packages whose tests need another kind of host, or an
// engine that takes too long to build: "make test-kvm", "make test-crio" and
// "make test-k8s" run them.
var elsewhere = []string{"./tests/kvmhost/inside", "./tests/crio", "./tests/k8s"}

// early are the packages of the units that start before the others: among the last, their
// tests would go on for minutes when all others have ended.
var early = []string{"./virtcontainers"}

// units returns the tests of each package alone, and the fuzz targets. A
// package that has no row is among them.
func units(tier string, packages []string) []suite {
	others := slices.Concat(early, slices.DeleteFunc(slices.Clone(packages), func(p string) bool {
		return slices.Contains(booting, p) || slices.Contains(apart, p) || slices.Contains(early, p)
	}))
	race, boot := []string{"-race"}, []string{"-p", "1"}
	if tier == tierQuick {
		race, boot = append(race, "-short"), append(boot, "-short")
	}
	rows := []suite{
		{name: "units", packages: others, flags: race, needs: engines, timeout: 25 * time.Minute},
		{ // one in three containers that are started by both ways
			name: "units-boot", packages: booting, flags: boot, env: []string{drawnOnce("KATABOX_TEST_GUEST_DRAW", "3/")},
			needs: []string{needBuild}, vm: true, timeout: 25 * time.Minute,
		},
	}
	if tier == tierAll {
		rows = append(rows, suite{ // the seeds of all targets are among the units
			name: "fuzz", command: []string{"go", "run", "./tests/tools/fuzz", "-json", "-time", "5s", "-one-in", "12"},
			events: true, once: true, timeout: 20 * time.Minute,
		})
	}
	return rows
}

// quickMachines returns a selection: each interaction between the parts, once.
func quickMachines() []suite {
	return append(nerdctl(), []suite{
		{
			name: "containerd-2.4", packages: []string{"./tests/containerd"}, env: []string{"KATABOX_TEST_CONTAINERD=2.4"},
			tests: quickContainerd, needs: saving, vm: true, timeout: 15 * time.Minute,
		},
		{
			name: "containerd-1.6", packages: []string{"./tests/containerd"}, env: []string{"KATABOX_TEST_CONTAINERD=1.6"},
			tests: dialectTests, needs: engines, vm: true, timeout: 15 * time.Minute,
		},
		{
			name: "isulad", packages: []string{"./tests/isulad"}, flags: []string{"-short"},
			needs: engines, vm: true, timeout: 10 * time.Minute,
		},
		{
			name: "oci", packages: []string{"./tests/oci"}, tests: quickOCI,
			needs: []string{needBuild}, vm: true, timeout: 10 * time.Minute,
		},
		{
			name: "network", packages: []string{"./tests/network"}, tests: quickNetwork,
			needs: engines, vm: true, timeout: 10 * time.Minute,
		},
		{
			name: "cri", packages: []string{"./tests/cri"}, tests: quickCRI,
			needs: append([]string{needCRITools}, engines...), uses: []string{critestPorts}, vm: true, timeout: 15 * time.Minute,
		},
		{
			name: "run", packages: []string{"./tests/run"}, tests: quickRun, needs: []string{needBuild}, vm: true, timeout: 10 * time.Minute,
		},
	}...)
}

// allMachines returns everything, in suites of similar length. tests are those of the
// packages that several suites share, by their directories' names.
func allMachines(tests map[string][]testFunc) []suite {
	containerd := tests["containerd"]
	newest := suite{
		name: "containerd-2.4", packages: []string{"./tests/containerd"}, env: []string{"KATABOX_TEST_CONTAINERD=2.4"},
		tests: without(names(containerd), crowded), needs: saving, vm: true, timeout: 25 * time.Minute,
	}
	oldest := suite{ // the newest release runs all of them
		name: "containerd-1.6", drawn: "containerd-1.6", packages: []string{"./tests/containerd"}, env: []string{"KATABOX_TEST_CONTAINERD=1.6"},
		// What depends on the machine alone runs with the newest release.
		tests: without(names(containerd, "each", "eachOwn"), crowded), needs: engines, vm: true, timeout: 25 * time.Minute,
	}
	rows := []suite{{ // one in three cases of the conformance suite
		name: "cri", packages: []string{"./tests/cri"}, tests: without(names(tests["cri"]), churn),
		env: []string{drawnOnce("KATABOX_TEST_CRI_DRAW", "3/")}, needs: append([]string{needCRITools}, engines...), uses: []string{critestPorts, crowd}, vm: true, timeout: 40 * time.Minute,
	}}
	// chaos and hostile mostly wait: each is to run beside a suite that computes.
	parts := sharded(newest, 3)
	rows = slices.Concat(rows, sharded(oldest, 3), parts[:2], chaos(), parts[2:], hostile(), crowds(), aspects(names(tests["network"])), clients())
	warm(rows)
	return rows
}

// warm has five in six suites of ordinary pods, drawn anew in each run, start their
// pods from templates: the tests hold for both ways to start, and a boot takes longer.
// chaos tests both: a draw decides how its pods start.
func warm(rows []suite) {
	var ordinary, chosen []int
	for i, s := range rows {
		switch {
		case isOrdinary(s.name):
			ordinary = append(ordinary, i)
		case s.name == "chaos" && rand.IntN(2) == 0:
			chosen = append(chosen, i)
		}
	}
	rand.Shuffle(len(ordinary), func(i, j int) { ordinary[i], ordinary[j] = ordinary[j], ordinary[i] })
	for _, i := range append(chosen, ordinary[len(ordinary)/6:]...) {
		rows[i].env = append(slices.Clone(rows[i].env), "KATABOX_TEST_TEMPLATE=1")
	}
}

// isOrdinary reports whether a suite's pods are like any others, and have a
// configuration of the harness's, which knows about templates.
func isOrdinary(name string) bool {
	switch name {
	case "cri", "cri-churn", "network", "network-churn", "soak", "containerd-crowd", "engines", "client", "run", "oci":
		return true
	}
	return strings.HasPrefix(name, "containerd-2.4/") || strings.HasPrefix(name, "containerd-1.6/")
}

// chaos plays one in three pairs of a moment and a victim.
func chaos() []suite {
	return []suite{{
		name: "chaos", packages: []string{"./tests/chaos"}, env: []string{"KATABOX_CHAOS_ONE_IN=5", drawnOnce("KATABOX_CHAOS_SEED", "")},
		needs: engines, vm: true, timeout: 30 * time.Minute,
	}}
}

func hostile() []suite {
	return []suite{{
		name: "hostile", packages: []string{"./tests/hostile"}, env: []string{"KATABOX_TEST_CONTAINERD=2.4"}, flags: []string{"-parallel", "4"},
		needs: engines, vm: true, timeout: 30 * time.Minute,
	}}
}

// crowds returns the suites that start pods until something grows or is left, of which a
// run has one.
func crowds() []suite {
	return []suite{
		{
			name: "containerd-crowd", drawn: manyPods, packages: []string{"./tests/containerd"}, tests: crowded,
			env: []string{"KATABOX_TEST_CONTAINERD=2.4"}, needs: engines, uses: []string{crowd}, vm: true, timeout: 25 * time.Minute,
		},
		{ // a short one; the long one: make test-soak
			name: "soak", drawn: manyPods, packages: []string{"./tests/soak"}, env: []string{"KATABOX_TEST_CONTAINERD=2.4"},
			needs: engines, vm: true, timeout: 15 * time.Minute,
		},
		{
			name: "cri-churn", drawn: manyPods, packages: []string{"./tests/cri"}, tests: churn,
			needs: append([]string{needCRITools}, engines...), uses: []string{critestPorts, crowd}, vm: true, timeout: 15 * time.Minute,
		},
		{
			name: "network-churn", drawn: manyPods, packages: []string{"./tests/network"}, tests: churn,
			needs: engines, uses: []string{cni}, vm: true, timeout: 15 * time.Minute,
		},
	}
}

// aspects returns the suites that test one aspect of a pod each, or other
// hosts.
func aspects(network []string) []suite {
	return []suite{
		{ // what an external file server serves differently from the shim
			name: "virtiofsd", drawn: otherHosts, packages: []string{"./tests/containerd"}, tests: served,
			env:   []string{"KATABOX_TEST_CONTAINERD=2.4", "KATABOX_TEST_VIRTIOFSD=/usr/lib/qemu/virtiofsd"},
			needs: engines, vm: true, timeout: 20 * time.Minute,
		},
		{
			name: "upgrade", packages: []string{"./tests/upgrade"}, needs: []string{needBuild}, vm: true, timeout: 15 * time.Minute,
		},
		{
			name: "network", packages: []string{"./tests/network"}, tests: without(network, churn),
			needs: saving, uses: []string{cni}, vm: true, timeout: 20 * time.Minute,
		},
		{ // the README's first command, on a bare Debian 13
			name: "distro", drawn: otherHosts, command: []string{"go", "run", "./tests/distro"}, needs: compiled, uses: []string{debian13}, vm: true, timeout: 25 * time.Minute,
		},
		{ // the package, installed there
			name: "deb", drawn: otherHosts, command: []string{"go", "run", "./tests/distro", "--", "tests/tools/trydeb.sh"}, needs: compiled,
			uses: []string{debian13}, vm: true, timeout: 25 * time.Minute,
		},
		{
			name: "kvm-smoke", command: []string{"go", "run", "./tests/kvmhost", "-smoke", "-json"}, events: true,
			needs: saving, uses: []string{crowd}, vm: true, timeout: 30 * time.Minute,
		},
	}
}

// drawnOnce returns a variable with the value that it has in the environment, or with
// a random number after prefix: a second try must draw what the first one drew.
func drawnOnce(variable, prefix string) string {
	return variable + "=" + cmp.Or(os.Getenv(variable), prefix+strconv.FormatUint(rand.Uint64(), 10))
}

// clients returns the suites of the engines and programs that start pods.
func clients() []suite {
	return append(nerdctl(), []suite{
		{
			name: "isulad", packages: []string{"./tests/isulad"}, needs: engines, vm: true, timeout: 20 * time.Minute,
		},
		{
			name: needClient, command: []string{"make", "clientsuite"}, uses: []string{goTool}, atOnce: true, timeout: 15 * time.Minute,
		},
		{ // the whole suite: make test-client
			name: "client", packages: []string{"./tests/client"}, flags: []string{"-short"},
			needs: append([]string{needClient}, saving...), vm: true, timeout: 20 * time.Minute,
		},
		{
			name: "run", packages: []string{"./tests/run"}, needs: []string{needBuild}, vm: true, timeout: 20 * time.Minute,
		},
		{
			name: "oci", packages: []string{"./tests/oci"}, needs: []string{needBuild, needQEMU}, vm: true, timeout: 15 * time.Minute,
		},
	}...)
}

// nerdctl plays the short scenes of tests/engines. The other engines and all
// scenes: make test-engines.
func nerdctl() []suite {
	return []suite{
		{
			name: needNerdctl, command: []string{"tests/tools/engines.sh", "nerdctl"}, uses: []string{goTool},
			atOnce: true, timeout: 15 * time.Minute,
		},
		{
			name: "engines", packages: []string{"./tests/engines"}, flags: []string{"-short"},
			tests: []string{"TestNerdctl", "TestCompare", "TestCompatPageListsWhatIsKnown", "TestRenamedMountIsNoLeak"},
			needs: append([]string{needNerdctl}, engines...), vm: true, timeout: 20 * time.Minute,
		},
	}
}

// crowded are the tests of tests/containerd with many simultaneous machines, churn those of
// tests/cri and tests/network.
var crowded, churn = []string{"TestPodsInParallel"}, []string{"TestChurn"}

// served are those about the files of the share.
var served = []string{"TestPodCostsOneOfEach", "TestKilledShim", "TestRootfsIsWritableAndOwn", "TestVirtioFSCache", "TestVolumeFiles", "TestHostChangesFiles"}

// without returns the names in all that are not in some.
func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(some, name) })
}

// quickContainerd is a test or two of each kind, with the newest release.
var quickContainerd = []string{
	"TestExitCodeOfInit", "TestExitCodeOfExec", "TestSignalsToInit", "TestStartOfNoProgram", // codes
	"TestBigStdoutArrivesWhole", "TestStdinEndsWhenClosed", "TestShellOnATerminal", // streams
	"TestEventsComeInOrder", "TestPodCostsOneOfEach", "TestPodSharesNamespaces", "TestServicesComeAndGo",
	"TestKilledVMM", "TestKilledShim", "TestBootFailsAtEachStep", // ends
	"TestConfigurationIsWrong", "TestKernelIsMissing", "TestAnnotationsSetTheSize",
	"TestEveryLimit", "TestHogIsKilledAlone", "TestBlockDevice", "TestBlockfileRootfs", "TestSandboxAPI", "TestContainerdComesBack", "TestCheckpoint",
}

// dialectTests is what depends on the release: the start, events, ends, and
// the commands of ctr.
var dialectTests = []string{
	"TestExitCodeOfInit", "TestEventsComeInOrder", "TestShellOnATerminal", "TestCtrTask", "TestCtrRun",
	"TestKilledShim", "TestKernelIsMissing", "TestServicesComeAndGo",
}

var quickOCI = []string{"TestSameAsRunc", "TestStreamsAndPod"}

var quickNetwork = []string{
	"TestPodsReachEachOther", "TestContainerSeesTheNamespace", "TestNamespaceChangesWhilePodRuns", "TestHostNetworkIsRefused",
}

var quickRun = []string{"TestStreams", "TestFollow", "TestEngineIsKilled", "TestLayersAreFreed"}

var quickCRI = []string{
	"TestCrictl", "TestCrictlExecTerminal", "TestCrictlAttach", "TestCrictlLogsFollow", "TestCrictlPortForward",
	"TestContainerRestarts", "TestEmptyDir", "TestConfigMapUpdate",
}
