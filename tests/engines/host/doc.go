// Package host runs a test binary on a private "host", so that container
// engines with fixed paths, bridges and firewall rules do not affect the
// machine.
//
// The binary starts itself twice more, in new network, mount, PID and IPC
// namespaces:
//
//	outer ──> init (PID 1: mounts, reaps) ──> suite (the tests)
//
// /run is an empty tmpfs there; /etc, /var/lib and /opt are overlays whose
// changes are lost; /proc and /sys are those of the new namespaces; lo is up.
// When the tests end, or the outer process is killed, init ends and with it
// every process, mount, link and firewall rule. Cgroups and loop devices are
// the machine's: the caller must remove them.
package host
