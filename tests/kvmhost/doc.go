// Command kvmhost runs Katabox on an emulated host with KVM, for build machines
// without it. QEMU's translator emulates AMD's SVM, so a machine under TCG has
// its own /dev/kvm and, with Debian's kernel, vhost-vsock, vhost-net and cgroup
// v2 too. Pods in it are virtual machines in a virtual machine.
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
// the machine would take minutes), boots the machine, runs them one after the
// other, and brings logs and outputs back into build/kvmhost/results. With "--"
// and a command it runs the command; with -shell, a shell.
//
// It needs root, QEMU, virtiofsd, and the kernel package that "make
// guest-image" fetched. The machine, its daemons and its files do not
// outlive this program, however it ends.
package main
