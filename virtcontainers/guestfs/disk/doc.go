// Package disk manages the disks of one machine: files and block devices of the
// host that its guest sees as disks, each attached once, however many of the
// pod's containers use it.
//
//	       Use            Use            Release          Release
//	none ──────> 1 user ──────> 2 users ────────> 1 user ────────> none
//	     attach    ^                                 |     detach
//	               | Use: detach, attach anew        | Release, detach failed
//	               +──────────── kept <──────────────+──> Release: detach again
//	                              ^ └──> DetachUnused: detach again
//	none ── Use, neither attach nor its removal confirmed
//
// A file is identified by file system and inode, a block device by its number,
// not by its path. The guest sees a block device's sector sizes (blocks.go), its
// length (length.go) and its growth (follow.go).
package disk
