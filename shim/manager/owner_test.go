package manager

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// A delete in one namespace, or by one engine, does not touch a container with
// the same id in another, dead or alive.
func TestDeleteLeavesOtherOwners(t *testing.T) {
	for name, other := range map[string]func(*Params){
		"namespace": func(p *Params) { p.Namespace = "other" },
		"engine":    func(p *Params) { p.GRPCAddress = "/run/other.sock" },
	} {
		t.Run(name, func(t *testing.T) {
			host := newHost(t)
			mine := newKilledShim(t, host, daemonOf(t, "test"))
			p := newParams(t, filepath.Join(host.RunDir, "other"), "pod", nil)
			p.GRPCAddress = mine.params.GRPCAddress
			other(p)
			shim := daemonOf(t, p.Namespace)
			theirs := killedShimOf(t, host, p, p.owner(), shim)
			if resp := remove(t, mine.params, host); resp.Pid != uint32(mine.standIn.PID) {
				t.Errorf("pid %d, want the stand-in's, %d", resp.Pid, mine.standIn.PID)
			}
			gone(t, mine.vm)
			remove(t, mine.params, host) // a removed record must not affect the other
			for _, left := range []persist.Process{shim, theirs.vm, theirs.fs, theirs.standIn} {
				if !left.Alive() {
					t.Errorf("process %d of the other owner has ended", left.PID)
				}
			}
			if !exists(theirs.socket) || !exists(platformDir(host, p.owner())) {
				t.Error("the other owner's socket or record was removed")
			}
			remove(t, p, host)
			gone(t, theirs.vm)
		})
	}
}

// Records of a shim that named them by the id alone are found by its pid, and so
// are those made under an address that the engine no longer uses.
func TestDeleteFindsOldRecords(t *testing.T) {
	for name, owner := range map[string]persist.Owner{
		"by the id alone": {}, "another address": {Address: "/run/before.sock", Namespace: "test"},
	} {
		host := newHost(t)
		shim := daemonOf(t, "test")
		k := killedShimOf(t, host, newParams(t, host.RunDir, "pod", nil), owner, shim)
		// A service container's bundle names no shim.
		remove(t, newParams(t, host.RunDir, "c1", serviceOf("pod")), host)
		if !k.vm.Alive() {
			t.Errorf("%s: a service container's delete has ended the machine", name)
		}
		remove(t, k.params, host)
		gone(t, shim)
		gone(t, k.vm)
	}
}

// An old record belongs only to its shim.
func TestDeleteLeavesOldRecordsOfOthers(t *testing.T) {
	for name, owner := range map[string]persist.Owner{
		"by the id alone": {}, "another namespace": {Address: "/run/before.sock", Namespace: "other"},
	} {
		host := newHost(t)
		k := killedShimOf(t, host, newParams(t, filepath.Join(host.RunDir, "other"), "pod", nil), owner, daemonOf(t, "other"))
		mine := newParams(t, host.RunDir, "pod", nil)
		mine.Namespace = "test"
		remove(t, mine, host)
		if !k.vm.Alive() || !exists(platformDir(host, owner)) {
			t.Errorf("%s: another's pod was removed", name)
		}
		k.params.Namespace, k.params.GRPCAddress = owner.Namespace, owner.Address
		remove(t, k.params, host)
		gone(t, k.vm)
	}
}

// daemonOf is a process that looks like the daemon of the container "pod" in a
// namespace.
func daemonOf(t *testing.T, namespace string) persist.Process {
	t.Helper()
	return sleeper(t, "/x/containerd-shim-kata-v2", "-namespace", namespace, "-id", "pod")
}

// platformDir returns the directory of the record of an owner's container "pod".
func platformDir(host *fakeguest.Host, owner persist.Owner) string {
	p := host.Platform()
	p.Owner = owner
	return p.PodDir("pod")
}

// If the records cannot be listed, that is an error, and nothing is removed.
func TestDeleteWithoutRecords(t *testing.T) {
	host := newHost(t)
	dir := host.Platform().StateDir()
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := newParams(t, host.RunDir, "pod", nil)
	if _, err := recordOwner(p, host.Platform(), "pod"); err == nil {
		t.Error("a file in the place of all records is no error")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
}
