package api

// Paths in the guest that both sides name.
const (
	// GuestRunDir holds all that the agent makes for a pod.
	GuestRunDir = "/run/kata-containers"
	// GuestSharedDir is where the pod's host share is mounted: the root file
	// systems and bind mounts of its containers.
	GuestSharedDir = GuestRunDir + "/shared/containers"
	// GuestShmDir is the pod's shared memory file system: /dev/shm of every
	// container whose engine gives it the pod's.
	GuestShmDir = GuestRunDir + "/sandbox/shm"
	// GuestFilesDir holds files that were copied in (ChangeFiles), and volumes
	// in which directories may have to be made. The agent gives it a file system
	// of its own when it is first used.
	GuestFilesDir = GuestRunDir + "/files"
	// GuestStorageDir holds what disks and volumes of the guest's own are
	// mounted on. It is short: an overlay names all its layers in one page.
	GuestStorageDir = GuestRunDir + "/s"
	// GuestSocketDir holds the UNIX sockets behind which there is one of the
	// host's.
	GuestSocketDir = GuestRunDir + "/sockets"
	// ShareTag is the virtio-fs tag of that share.
	ShareTag = "kataShared"
)
