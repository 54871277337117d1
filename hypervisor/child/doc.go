// Package child starts a helper process (QEMU, virtiofsd) whose life is tied
// to this process's life: however this process ends, kill -9 included, the
// kernel kills the helper. It also keeps the end of what the helper prints
// (Tail), so that an early death can explain itself.
//
// A helper may run in namespaces of its own, or in a network namespace that is
// there already: the thread that forks it enters that one first, and is used
// for nothing else before or after.
//
// Or it starts in a mount namespace that holds what it needs and no more
// (Room), by way of this program itself (stage.go):
//
//	shim's thread, in the room --fork--> /stage, process 1: makes /proc --exec--> helper
//
// Or it is nobody: a user of its own without any right of root's, in a root
// directory with little in it (Jail), by way of this program too (jailstage.go):
//
//	shim's thread --fork--> /proc/self/exe: root directory, user --exec--> helper
//
// OnOwnThread is of use to whoever changes what the kernel keeps for each
// thread: namespaces, root directory.
//
// What the helper is for, and how to talk to it, is not known here.
//
//	Start            exit, Kill
//	-----> [running] ----------> [gone]
//
// [gone] is final: the process is reaped, its output is drained as far as it
// could be, and Done is closed.
package child
