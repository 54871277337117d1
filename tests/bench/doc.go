// Bench is what "make bench" runs: how long "ctr run --rm busybox true" takes
// with kata and with runc, by turns, and how long the same QEMU and kernel take
// to a trivial init, all in one run on one machine, so that only ratios need to
// be compared with other machines; the steps of a boot as the shim logged them;
// what a pod of pause and four containers costs the host in memory; what files
// cost when the shim serves the share, and when a virtiofsd does; and the TCP
// throughput between a guest and the host, compared with a process in an equal
// network namespace, and with a guest of the same QEMU on a bare TAP device. With
// -crowd it measures only what pods cost in memory that run at the same time.
package main
