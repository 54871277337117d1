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
// Each bind mount of the spec becomes a guestspec.Placed exactly once, by the
// way that fits it (package volume); Spec puts the list into the guest's spec.
//
//	guestfs ──> storage    the share; root file systems mounted on the host
//	        ──> rootfs     root file systems made of disks in the guest
//	        ──> volume     which way a bind mount goes
//	        ──> disk       the machine's disks
//	        ──> filesync   copies in the guest
//	        ──> reverse    UNIX sockets
//
// No other package imports those folders, except volume/direct, whose records
// kata-runtime writes (tests/arch). What belongs to a container is removed by
// its Release, and a directory of the host with the Release of the last container
// that has it; what the pod's containers share of the guest's own (podVolumes) ends
// with the machine.
//
// A guest's error about something that it should mount names the mount point
// (guest.StorageError); Explain adds its source on the host.
package guestfs
