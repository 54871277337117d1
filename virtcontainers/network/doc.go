// Package network joins the links of a pod's network namespace to its VM: each
// link with an address becomes a NIC of the guest with the same name, MAC, MTU
// and addresses, and the guest also gets the namespace's routes, policy rules and
// permanent neighbours, and what was set for its links. The agent applies them in
// the guest (agent/network).
//
// The path of packets with each model:
//
//	tcfilter         pod's network namespace                 VM
//	             ┌──────────────────────────────┐      ┌────────────┐
//	 CNI's       │         u32 + mirred         │      │            │
//	 bridge ─────┼─ eth0 <─────────────> tap2_kata ────┼─ eth0      │
//	             │  ingress qdiscs on both      │      │ virtio-net │
//	             └──────────────────────────────┘      └────────────┘
//
// Packets received on the link are sent out over the tap, and vice versa,
// before the namespace's own stack sees them, except those that connectIn lets pass:
// what belongs to a connected socket of the namespace goes to that stack alone, in both
// models (sockets.go). The link keeps its addresses, which CNI needs when it removes the
// pod, but answers for nothing of the guest's.
//
//	macvtap      ┌──────────────────────────────┐      ┌────────────┐
//	             │  u32 + mirred                │      │            │
//	 bridge ─────┼─ eth0 ──────────> macvtap ──────────┼─ eth0      │
//	             │   ^    <───────── tap2_kata  │      │ virtio-net │
//	             └──────────────────────────────┘      └────────────┘
//
// A macvtap over the link sends by itself. Packets received on the link are
// redirected to it, so that here, too, the link keeps its configuration and
// answers nothing. (Without the redirect the link would have to lose its MAC and
// its addresses, and with them its routes.)
//
// With model none there is a tap for each link, connected to nothing. A link
// that is itself a persistent tap is opened directly, with any model.
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
// Watch notices changes of the namespace, and when another program removes a filter or a
// qdisc; Plug makes them again (reconnect.go).
//
// Close removes what was made: qdiscs and filters on links, macvtaps and ifbs.
// If this process is killed, Clean does so from the record that Options.Save got.
// Taps vanish with the last process that has them open, and the links' reception of all
// multicast ends with this process (multicast.go). Clean changes only the namespace that
// was opened, even if its path leads to another one now.
//
// While a pod hibernates, a Doorbell reports packets for it.
package network
