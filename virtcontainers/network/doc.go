// Package network joins the links of a pod's network namespace to its VM: each
// link with an address becomes a NIC of the guest with the same name, MAC, MTU
// and addresses, and the namespace's routes and permanent neighbours go with
// them. What the guest makes of it is the agent's affair (agent/network).
//
// The packet's way with each model:
//
//	tcfilter         pod's network namespace                 VM
//	             ┌──────────────────────────────┐      ┌────────────┐
//	 CNI's       │         u32 + mirred         │      │            │
//	 bridge ─────┼─ eth0 <─────────────> tap2_kata ────┼─ eth0      │
//	             │  ingress qdiscs on both      │      │ virtio-net │
//	             └──────────────────────────────┘      └────────────┘
//
// What comes in over the link is sent out over the tap, and the other way
// round, before the namespace's own stack sees it. The link keeps its
// addresses, which CNI looks for when it removes the pod, and answers nothing.
//
//	macvtap      ┌──────────────────────────────┐      ┌────────────┐
//	             │  u32 + mirred                │      │            │
//	 bridge ─────┼─ eth0 ──────────> macvtap ──────────┼─ eth0      │
//	             │   ^    <───────── tap2_kata  │      │ virtio-net │
//	             └──────────────────────────────┘      └────────────┘
//
// A macvtap over the link sends by itself; what comes in is redirected to it
// as if it had received it, so that here too the link keeps all it has and
// answers nothing. (Without the redirect the link would have to lose its MAC
// and its addresses, and with these its routes.)
//
// With model none there is a tap for each link, connected to nothing. A link
// that is a persistent tap itself is opened as it is, with any model.
//
// The life of a link:
//
//	      an address     Plug                    link gone, Plug
//	seen ───────────> waiting ─────────> joined ────────────────> (nothing)
//	                     │                  │                        ^
//	                     └─ cannot be: ──┐  └──> leaving ────────────┘
//	                        error, once  v       the VM keeps the NIC: tried
//	                                  refused    again at the next Plug
//
// What is made is undone by Close, or by Clean from what Options.Save got, if
// this process is killed: qdiscs and filters on links, macvtaps and ifbs. Taps vanish
// with the last process that has them open. Clean touches no other namespace
// than the one that was opened, whatever is found at its path.
package network
