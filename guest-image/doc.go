// Command guest-image builds the files that a pod's virtual machine boots: the
// kernel, as an uncompressed ELF, and an initramfs with the agent.
//
//	make agent                      # bin/kata-agent, the guest's init
//	go run ./guest-image            # build/guest/vmlinux, build/guest/initrd.img
//
// The kernel is Debian's cloud kernel: apt provides the names and SHA-256 of its
// packages, apt-get downloads them to the cache, and nothing is installed. The same
// agent and the same packages give the same bytes; if the outputs are up to date,
// nothing is done.
//
// Flags:
//
//	-agent PATH           the static agent binary (bin/kata-agent)
//	-busybox PATH         a static busybox, for a guest that can be debugged from
//	                      within; none by default
//	-iptables PATH        this host's iptables, with its libraries and extensions,
//	                      for kata-runtime iptables; none by default
//	-out DIR              where vmlinux and initrd.img go (build/guest)
//	-cache DIR            where downloaded packages stay (build/cache)
//	-kernel-package NAME  a kernel image package, or a meta package that
//	                      depends on one (linux-image-cloud-amd64)
//	-deb PATH             use this package file: no apt, no network; repeated for
//	                      a kernel in several (linux-base-*, linux-binary-*,
//	                      linux-modules-* of Debian 14)
//	-module NAME          add this kernel module, with those that it needs, loaded when
//	                      the kernel requests it; repeated for several
//	-compress FORMAT      of the initrd: lz4 or none (lz4)
//	-force                build even if the outputs are up to date
//
// # The archive
//
//	/init                   the agent
//	/dev/console, /dev/null
//	/etc/katabox/modules    the list of modules, for the agent
//	/lib/modules/RELEASE/   the modules; modules.zip has those that the kernel requests
//	/dev /etc /proc /run /sys /tmp   directories to mount on
//
// The list has one module a line, "WHEN NAME PATH NEEDS [ALIAS...]", and is in
// load order: each module comes after those it needs. A module needs only modules
// of the same WHEN and of those listed before it here:
//
//	boot     what every pod needs, loaded at start
//	demand   loaded when the host requests it by name
//	kernel   loaded when the kernel requests it by name or alias
//	builtin  part of the kernel: PATH and NEEDS are "-", there is nothing to load
//
// NEEDS names the modules that it needs directly, all of them above it, with
// commas between them, or is "-"; a question mark follows a module that it can do
// without. Modules that are built into the kernel are left out. (A module of
// choice.go that is built in has its own line, because the kernel does not report
// it: /sys/module has only those built-in modules that have parameters.) An ALIAS
// is a name from the module's .modinfo that the kernel may request in full
// (aliases.go). A PATH below a .zip file is in that file.
//
//	boot virtio /lib/modules/6.1.0-56-cloud-amd64/kernel/drivers/virtio/virtio.ko virtio_ring
//	kernel bridge /lib/modules/6.1.0-56-cloud-amd64/modules.zip/bridge.ko llc,stp rtnl-link-bridge
//
// The program reads kernels that are packed with gzip, bzip2 or LZ4, and with
// xz or zstd if the host has these tools; it cannot read LZMA and LZO.
package main
