// Command kata-runtime is the operator's tool: can this host run pods (check),
// and with which configuration would a pod be made here (env)? Storage drivers
// assign disks to volumes with it (direct-volume). It has pods hibernate and wake.
// And it runs containers where there is no engine: run, exec, logs, ps, stop, rm
// (standalone/command).
//
// Most of the code in this package only reads. It sees the machine only through a
// host (host.go), so that tests can provide their own; a check is a function from a
// host and its configuration to one line (check.go). The engines do not call it,
// they call containerd-shim-kata-v2.
package main
