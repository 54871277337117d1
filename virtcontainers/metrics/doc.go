// Package metrics converts the guest's counters to the format that an engine reads.
//
// The guest has cgroup v2 only, and its agent answers with
// io.containerd.cgroups.v2.Metrics. An engine on a host with cgroup v1, and
// iSulad on every host, expects io.containerd.cgroups.v1.Metrics: iSulad
// decodes the bytes as v1 whatever their type is.
package metrics
