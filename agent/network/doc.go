// Package network configures the guest's own network stack, which every
// container of the pod shares.
//
// Network.Apply gets the whole network that the pod should have, and applies it
// in this order:
//
//	check ──> find NICs ──> withdraw ──> name ──> settings ──> links ──> addresses ──> routes ──> rules ──> neighbours ──> resolv.conf
//
// A request is checked as a whole (check.go) before anything is touched. NICs
// are found by their PCI paths (pci.go), because the kernel chooses names and
// bus numbers. What an earlier call added and this one does not name is
// withdrawn first; then each kind is compared with what the kernel has, and
// only the difference is changed. What containers of the pod made stays, unless
// it conflicts with the request.
//
// The kernel's IPv6 defaults apply: a pod's NICs accept router advertisements. Their
// link-local addresses are the host's, or the kernel makes them if it has none (ipv6.go).
//
// The interfaces' traffic counters are read here too (counters.go), and their queues
// are used when the guest gets more CPUs (queues.go).
package network
