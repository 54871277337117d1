// Package guestfs owns the files of a pod's containers: it takes what an engine
// passes on the host (a bundle with its OCI spec, and the mounts of a root file
// system) and returns the spec for the guest, with a Release that undoes
// everything.
//
//	Open ──> Attach ──> Connect ──> Container ──> Steps ──> Spec ──> Release      Close
//	 share    its device, the agent   │            rootfs                 │
//	          disks                   │            volumes                │
//	                                  │            devices                │
//	                                  └─────────── one undo list ─────────┘
//
// Each bind mount of the spec becomes a guestspec.Placed exactly once, in the way
// that package volume chooses; Spec puts the list into the guest's spec.
//
//	guestfs ──> storage    the share; root file systems mounted on the host
//	        ──> rootfs     root file systems made of disks in the guest
//	        ──> volume     how a bind mount gets into the guest
//	        ──> disk       the machine's disks
//	        ──> filesync   copies in the guest
//	        ──> reverse    UNIX sockets
//
// No other package imports those folders, except volume/direct, whose records
// kata-runtime writes (tests/arch).
//
// A container's Release removes what belongs to it. A host directory that several
// containers mount is removed by the last Release. Volumes of the guest that the
// pod's containers share (podVolumes) end with the machine.
//
// Watch grows containers' block devices with the host's. The group of a volume's files
// is given once for the pod (fsgroup.go).
//
// A guest's mount error names the mount point (guest.StorageError) or the source in the
// guest; Explain adds its source on the host.
package guestfs
