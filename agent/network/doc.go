// Package network configures the guest's own network stack, which every
// container of the pod shares.
//
// Network.Apply is told the whole network that the pod should have, and makes
// it so in this order:
//
//	check ──> find NICs ──> withdraw ──> name ──> links ──> addresses ──> routes ──> neighbours ──> resolv.conf
//
// A request is checked as a whole (check.go) before anything is touched. NICs
// are found by their place on the PCI buses (pci.go), as names and bus numbers
// are the kernel's to choose. What an earlier call added and this one does not
// name is withdrawn first; then each kind is compared with what the kernel
// has, and only the difference is changed. What containers of the pod made
// themselves stays, unless it is in the way of what is wanted.
//
// IPv6 is left as the kernel has it: a pod's NICs take part in router
// advertisements and make their link-local addresses as a container's do.
//
// What the interfaces have carried is read here too (counters.go).
package network
