// Package images makes stand-ins for the images that the CRI project's
// conformance suite pulls, and serves them: there is no registry to pull from.
// They are put together from Debian's busybox-static and nginx and from three
// small programs in C (programs/), under the names that are written in the suite
// (sigs.k8s.io/cri-tools, pkg/validate/consts.go).
//
//	Build: host's busybox, nginx's package, programs ──> Store: images by name and tag
//	Serve: Store ──> a registry on 127.0.0.1
//
// The registry answers for every host: requests do not contain what precedes
// the first slash of an image's name. It knows nothing of containerd, which is
// told about it by a hosts.toml (tests/cri).
package images
