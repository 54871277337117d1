// Package network is the suite for pods on real networks: a containerd of its
// own, network namespaces as an engine makes them, Debian's CNI plugins, and
// the runtime that KATABOX_TEST_RUNTIME names. What holds for any runtime is
// also run with runc, which says whether the suite is right.
//
// The suite is its own host: it starts itself again in a network namespace of
// its own, and containerd, shims, bridges and firewall rules are all in there.
// So nothing of the machine's network is touched, and what is found at the end
// is the suite's.
//
//	┌ suite's namespace ("the host") ─────────────────────────────┐
//	│ containerd, shims          bridge made by CNI, up link, ... │
//	│                              │                              │
//	│   ┌ pod's namespace ─────────┴─┐   ┌ VM ──────────────────┐ │
//	│   │ eth0 made by CNI        tap├───┤ eth0, probe (serves) │ │
//	│   └────────────────────────────┘   └──────────────────────┘ │
//	└─────────────────────────────────────────────────────────────┘
//
// What is asked on either end is asked by the probe (tests/network/probe).
package network
