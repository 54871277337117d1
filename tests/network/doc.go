// Package network is the suite for pods on real networks. It runs its own
// containerd, with network namespaces as an engine makes them, Debian's CNI
// plugins, and the runtime that KATABOX_TEST_RUNTIME names. Tests of what holds
// for any runtime also run with runc, which checks the suite itself.
//
// The suite is its own host: it starts itself again in its own network
// namespace, and containerd, shims, bridges and firewall rules are all in
// there. So the machine's network is not touched, and whatever is left at the
// end is from the suite.
//
//	┌ suite's namespace ("the host") ─────────────────────────────┐
//	│ containerd, shims          bridge made by CNI, up link, ... │
//	│                              │                              │
//	│   ┌ pod's namespace ─────────┴─┐   ┌ VM ──────────────────┐ │
//	│   │ eth0 made by CNI        tap├───┤ eth0, probe (serves) │ │
//	│   └────────────────────────────┘   └──────────────────────┘ │
//	└─────────────────────────────────────────────────────────────┘
//
// On either end the checks are made by the probe (tests/network/probe).
package network
