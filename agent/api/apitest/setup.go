package apitest

import (
	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// setUp gives a guest its pod, after which it can make containers.
func (h *host) setUp() error {
	h.Helper()
	_, err := h.guest.SetupSandbox(h.Context(), &api.SetupSandboxRequest{SandboxId: "s"})
	return err
}

func (h *host) prepare() error {
	h.Helper()
	_, err := h.guest.Prepare(h.Context(), &api.PrepareRequest{})
	return err
}

// stages takes a guest to its pod: it takes nothing before it is prepared or set up, and
// no second pod.
func stages(h *host) {
	for what, call := range h.needsPod() {
		h.want(what+" in a bare guest", call(), errdefs.IsFailedPrecondition)
	}
	h.must("Prepare", h.prepare())
	h.must("a second Prepare", h.prepare())
	h.must("create before the pod", h.create("early", ""))
	_, err := h.delete("early", "")
	h.must("Delete", err)
	h.must("SetupSandbox", h.setUp())
	h.want("a second SetupSandbox", h.setUp(), errdefs.IsFailedPrecondition)
	h.want("Prepare of a pod", h.prepare(), errdefs.IsFailedPrecondition)
	h.must("create", h.create("c", ""))
}

// needsPod returns calls that a bare guest refuses.
func (h *host) needsPod() map[string]func() error {
	ctx, target := h.Context(), api.GuestFilesDir+"/x"
	return map[string]func() error{
		"Create":      func() error { return h.create("c", "") },
		"AddStorages": func() error { _, err := h.guest.AddStorages(ctx, &api.AddStoragesRequest{}); return err },
		"ChangeFiles": func() error { _, err := h.guest.ChangeFiles(ctx, &api.ChangeFilesRequest{}); return err },
		"ReadFile":    func() error { _, err := h.guest.ReadFile(ctx, &api.ReadFileRequest{Path: target}); return err },
		"SetNetwork":  func() error { _, err := h.guest.SetNetwork(ctx, &api.SetNetworkRequest{}); return err },
		"VolumeStats": func() error { _, err := h.guest.VolumeStats(ctx, &api.VolumeStatsRequest{Target: target}); return err },
		"GrowVolume":  func() error { _, err := h.guest.GrowVolume(ctx, &api.GrowVolumeRequest{Target: target}); return err },
		"GetIPTables": func() error { _, err := h.guest.GetIPTables(ctx, &api.GetIPTablesRequest{}); return err },
		"SetIPTables": func() error { _, err := h.guest.SetIPTables(ctx, &api.SetIPTablesRequest{}); return err },
		"Rejoin":      func() error { _, err := h.guest.Rejoin(ctx, &api.RejoinRequest{}); return err },
	}
}

// setupFails gives a guest its pod while there is a container: it cannot be used any more.
func setupFails(h *host) {
	h.must("Prepare", h.prepare())
	h.must("create", h.create("early", ""))
	h.want("SetupSandbox with a container", h.setUp(), errdefs.IsFailedPrecondition)
	_, err := h.delete("early", "")
	h.must("Delete", err)
	h.want("SetupSandbox after one that failed", h.setUp(), errdefs.IsFailedPrecondition)
	h.want("create after that", h.create("c", ""), errdefs.IsFailedPrecondition)
}

// invalid makes calls with arguments that no guest takes.
func invalid(h *host) {
	h.want("a container whose id is a path", h.create("a/b", ""), errdefs.IsInvalidArgument)
	h.running("c")
	h.want("an exec whose id is a path", h.exec("c", "a/b"), errdefs.IsInvalidArgument)
	_, err := h.guest.Rejoin(h.Context(), &api.RejoinRequest{Containers: []*api.RenamedContainer{{From: "c", To: "a/b"}}})
	h.want("another id that is a path", err, errdefs.IsInvalidArgument)
	_, err = h.guest.SetClock(h.Context(), &api.SetClockRequest{})
	h.want("SetClock without a time", err, errdefs.IsInvalidArgument)
}
