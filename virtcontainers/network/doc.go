// Package network joins the links of a pod's network namespace to its VM: each
// link with an address becomes a NIC of the guest with the same name, MAC, MTU
// and addresses, and the namespace's routes and permanent neighbours go with
// them.
//
// The packet's way with the default model, tcfilter:
//
//	        pod's network namespace                  VM
//	     ┌───────────────────────────────┐      ┌───────────┐
//	     │            u32, mirred        │      │           │
//	CNI ─┼─ eth0 ───────────────> tap2_kata ────┼─ eth0     │
//	     │  ingress <─────────────  ingress     │ virtio-net│
//	     └───────────────────────────────┘      └───────────┘
//
// What comes in over the link is sent out over the tap, and the other way
// round, before the namespace's own stack sees it: the link keeps its
// addresses, which CNI looks for when it removes the pod, and answers nothing.
// A link that is a persistent tap itself is opened and needs no redirect. With
// model none there is a tap for each link, and the operator joins both.
//
// Nothing here is persistent but the qdiscs and filters on the links; taps
// vanish with the last process that has them open. Options.Save is told before
// anything is made, so that Clean can undo it when this process is killed.
package network
