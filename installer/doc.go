// Package installer installs Katabox on a node and removes it. The node is a file
// tree below a root: "/" on the node itself, or the mount of the node's root in a
// container.
//
// Files go below /opt/kata, each build in a directory that is named by its
// version and the digest of its files, and that never changes once it exists:
//
//	/opt/kata/versions/0.1.0-5d1c7e.../bin, share
//	/opt/kata/current -> versions/0.1.0-5d1c7e...
//	/opt/kata/bin -> current/bin, /opt/kata/share -> current/share
//
// An upgrade is one rename of the link current. Running pods keep the files that
// their shim was started with: a version is removed when no process uses it any
// more. A shim finds the default configuration and the guest's image beside itself,
// in its version's directory.
//
// The runtime handler is registered with the engines: with containerd by a
// drop-in or a marked block (containerd.go explains the choice), with CRI-O by a
// drop-in.
//
// docs/adr/0044 has the reasons.
//
// Each change is one rename, and the data to undo it is saved first. Install and
// Uninstall may be killed at any point: running either again completes it.
package installer
