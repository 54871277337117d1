// Command distro runs this checkout on another release of Debian, as a new
// user there would: a fresh root file system made by debootstrap, entered by
// pivot_root in its own namespaces.
//
//	build/distro/RELEASE/root     the root file system, made once
//	build/distro/RELEASE/checkout bin and build of the checkout in there
//
//	/            root
//	/src         this checkout, with bin and build from above
//	/usr/local/go and Go's caches, resolver, hosts, certificates: this host's
//	/run, /tmp   tmpfs; /proc new; /sys and /dev are this host's
//
// The command, "make demo demo-virtiofsd" if none is given, is the child of a process 1 that
// belongs to this program: when either ends, for any reason, everything that
// was started in there ends too, and the mounts vanish with their namespace.
// The network is this host's, for the archive and the module proxy; the suites
// and the demo make their own.
//
//	go run ./tests/distro                           # both demos on Debian 13
//	go run ./tests/distro -release bookworm -- make demo
//	go run ./tests/distro -- bash                   # look around
package main
