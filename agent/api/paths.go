package api

// Paths in the guest that both sides name.
const (
	// GuestRunDir holds everything that the agent makes for a pod.
	GuestRunDir = "/run/kata-containers"
	// GuestSharedDir is where the pod's host share is mounted: the root file
	// systems and bind mounts of its containers.
	GuestSharedDir = GuestRunDir + "/shared/containers"
	// GuestPodVolumesDir has the share's volumes that the pod's containers have in
	// common, each a mount.
	GuestPodVolumesDir = GuestSharedDir + "/pod-volumes"
	// GuestShmDir is the pod's shared memory file system: /dev/shm of every
	// container whose engine gives it the pod's.
	GuestShmDir = GuestRunDir + "/sandbox/shm"
	// GuestFilesDir holds files that were copied in (ChangeFiles), and volumes
	// in which directories may have to be made. The agent mounts a separate
	// file system on it at its first use.
	GuestFilesDir = GuestRunDir + "/files"
	// GuestStorageDir holds the mount points of disks and of the guest's own
	// volumes. It is short because an overlay names all its layers in one page
	// of options.
	GuestStorageDir = GuestRunDir + "/s"
	// GuestSocketDir holds the UNIX sockets whose connections go to the host's
	// sockets.
	GuestSocketDir = GuestRunDir + "/sockets"
	// ShareTag is the virtio-fs tag of that share.
	ShareTag = "kataShared"
)
