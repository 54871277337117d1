// Command kata-runtime is several things:
//
//   - the operator's tool: whether this host can run pods (check), with which
//     configuration (env), and commands for running pods (pods, log, metrics,
//     timeline, hibernate, wake and others);
//   - for storage drivers: direct-volume;
//   - an OCI runtime (shim/oci);
//   - containers without an engine: run, exec, logs, ps, stop, rm
//     (standalone/command).
//
// Engines that use the shim call containerd-shim-kata-v2, not this program.
//
// The code for check and env only reads. It accesses the machine through a host
// (host.go), so that tests can provide their own. A check is a function from a host
// and its configuration to one line (check.go).
package main
