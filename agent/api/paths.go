package api

// Paths in the guest that both sides name.
const (
	// GuestRunDir holds all that the agent makes for a pod.
	GuestRunDir = "/run/kata-containers"
	// GuestSharedDir is where the pod's host share is mounted: the root file
	// systems and bind mounts of its containers.
	GuestSharedDir = GuestRunDir + "/shared/containers"
	// ShareTag is the virtio-fs tag of that share.
	ShareTag = "kataShared"
)
