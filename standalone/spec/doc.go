// Package spec makes the OCI specification of a container without an engine,
// of its image's configuration and its user's options, with containerd's
// defaults for what neither says: capabilities, masked paths, devices, the
// seccomp profile.
package spec
