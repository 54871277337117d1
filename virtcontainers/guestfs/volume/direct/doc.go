// Package direct keeps the records of storage drivers (CSI) about volumes that
// a pod's machine gets as disks: "at this path, the container means the file
// system on that device".
//
//	driver ── kata-runtime direct-volume add ──> mountInfo.json
//	                                                  │ Lookup
//	container's mount of the volume's path ───────────┴──> disk of the guest
//
// The place and form of the files are Kata Containers', whose drivers write
// them themselves: <Default>/<base64 of the path>/mountInfo.json (upstream's
// docs/design/direct-blk-device-assignment.md and src/runtime/pkg/direct-volume).
// The package opens no device and knows no sandbox.
package direct
