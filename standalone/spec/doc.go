// Package spec makes the OCI specification of a container without an engine, from
// its image's configuration and its user's options, with containerd's defaults
// for the rest: capabilities, masked paths, devices, the seccomp profile.
package spec
