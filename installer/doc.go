// Package installer puts Katabox on a node and takes it away again. The node is a
// file tree below some root: "/" on the node itself, or where its root is mounted
// in a container.
//
// Files go below /opt/kata, each build in a directory that is named by its
// version and the digest of its files and never changes once it is there:
//
//	/opt/kata/versions/0.1.0-5d1c7e.../bin, share
//	/opt/kata/current -> versions/0.1.0-5d1c7e...
//	/opt/kata/bin -> current/bin, /opt/kata/share -> current/share
//
// An upgrade is one rename of the link current. Pods that run keep the files that
// their shim was started from: a version goes when no process uses it any more.
// A shim finds the configuration beside itself, which names that version's guest.
//
// Engines are told of a runtime handler: containerd by a drop-in or a marked block
// (containerd.go says when which), CRI-O by a drop-in.
//
// Why it is so: docs/adr/0044.
//
// Each change is one rename, and each is preceded by what its undoing needs.
// Install and Uninstall may be killed anywhere: to run either again completes it.
package installer
