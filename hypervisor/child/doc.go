// Package child starts a helper process (QEMU, virtiofsd) whose life is tied
// to this process's life: however this process ends, kill -9 included, the
// kernel kills the helper. It also keeps the end of what the helper prints
// (Tail), so that an early death can explain itself, and makes connections to
// it (Socket).
//
// A helper may run in its own namespaces, or in an existing network namespace:
// the thread that forks it enters that first, and is used for nothing else
// before or after.
//
// Or it starts in a mount namespace that holds only what it needs (Room), by
// way of this program itself (stage.go):
//
//	shim's thread, in the room --fork--> /stage, process 1: makes /proc --exec--> helper
//
// Or it runs as a dedicated user without any of root's rights, in a root
// directory with little in it (Jail), also by way of this program
// (jailstage.go):
//
//	shim's thread --fork--> /proc/self/exe: root directory, user --exec--> helper
//
// OnOwnThread and Thread are for code that changes what the kernel keeps for each
// thread: namespaces, root directory.
//
// The package does not know what the helper is for, nor its protocol.
//
//	Start            exit, Kill
//	-----> [running] ----------> [gone]
//
// [gone] is final: the process is reaped, its output is drained as far as
// possible, and Done is closed.
package child
