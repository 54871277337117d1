// Package child starts a helper process (QEMU, virtiofsd) that the kernel kills
// when this process ends in any way, SIGKILL included. It also keeps the end of
// the helper's output (Tail), which explains an early death, and makes
// connections to it (Socket).
//
// A helper may run in its own namespaces, or in an existing network namespace.
// The thread that forks it enters that namespace first, and has no other use.
//
// A helper may start in a mount namespace with only the files that it needs
// (Room), through this program itself (stage.go):
//
//	shim's thread, in the room --fork--> /stage, process 1: makes /proc --exec--> helper
//
// Or it runs as a dedicated user without any of root's privileges, in a root
// directory with only the files that it needs (Jail), also through this program
// (jailstage.go):
//
//	shim's thread --fork--> /proc/self/exe: root directory, user --exec--> helper
//
// A parent that is killed before the child has set PDEATHSIG would leave it behind, so
// both stages check that the parent is still there (orphan.go). A helper that is process
// 1 of a PID namespace, with neither a room nor a jail, has a stage for that, too. All
// stages raise the helper's limit of open files (limits.go).
//
// Thread is for calls that need per-thread state: namespaces, root directory.
//
// The package knows neither the helper's purpose nor its protocol.
//
//	Start            exit, Kill
//	-----> [running] ----------> [gone]
//
// [gone] is final: the process is reaped, its output is drained as far as
// possible, and Done is closed.
package child
