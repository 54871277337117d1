// Package guestspec turns the OCI spec that an engine wrote for its host into
// the one that the guest may see. It holds pure functions over specs.
//
// The host's spec is filtered, not trusted: hooks, host namespaces, host
// device nodes, host cgroup paths and security labels of the host's kernel
// never reach the guest. Limits (pids, memory, CPU shares and quota, huge
// pages, rlimits), capabilities, seccomp where the operator wants it, sysctls,
// and masked and read-only paths do: the guest's kernel enforces them.
//
// The guest has cgroup v2, whatever the host has; a container that runs systemd gets
// it instead of the host's v1 hierarchy (filterSystemd).
package guestspec
