// Package env is a private containerd with CRI, for the conformance suite and
// for crictl: the harness's containerd 2.x, a registry of stand-in images, and
// a private pod network made by Debian's CNI plugins. It has two runtime
// handlers, "runc" and "kata", so that both are tested under one configuration.
//
//	Start ──> running ──(Crictl, critest, ...)──> Settled: no pod left anything
//	             └──> Stop: pods removed, bridge and chains gone, host as before
//
// Everything of the network has a name that is unique to this run: the bridge,
// the subnet, the CNI network (and with it the firewall's comments, the leases
// and CNI's cache). Network namespaces are mounted below the daemon's directory
// (netns_mounts_under_state_dir), where the harness's check finds them.
package env
