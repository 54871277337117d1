// Command kvmhost runs katabox on a host with KVM, where there is none: QEMU's
// translator emulates AMD's SVM, so a machine under TCG has a /dev/kvm of its
// own, and with Debian's kernel vhost-vsock, vhost-net and cgroup v2 too. Pods
// in it are virtual machines in a virtual machine.
//
//	build machine                     the KVM host (TCG)            pods (KVM)
//	┌──────────────┐ virtio-serial ┌───────────────────────────┐  ┌───────────┐
//	│ this program │ ────────────> │ init ── command ── shim ──┼─>│ QEMU, KVM │
//	│ ├─ QEMU      │  (wire)       │ /        the build        │  └───────────┘
//	│ └─ virtiofsd │ ────────────> │          machine's, below │
//	│    (two)     │  virtio-fs    │          a tmpfs overlay  │
//	└──────────────┘               │ /results writable         │
//	                               └───────────────────────────┘
//
// Without arguments it builds the chosen suites' test programs (compiling in
// there would take minutes), boots the machine, runs them one after the other,
// and brings logs and outputs back into build/kvmhost/results. With "--" and a
// command it runs that, with -shell a shell.
//
// What must be there: root, QEMU, virtiofsd, the kernel package that "make
// guest-image" fetched. The machine, its daemons and its files die with this
// program, however that ends.
package main
