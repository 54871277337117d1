package passthrough

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// asProcessReader makes the thread one that may open and read a file of a proc file
// system. The kernel lets a process access others of its user whose capabilities it has
// (kernel/ptrace.c, __ptrace_may_access, security/commoncap.c, cap_ptrace_access_check).
// So the thread is root, whatever user the guest names, without capabilities but the one
// that a process needs to open other users' files. A process's memory it does not get.
func (fs *FS) asProcessReader(t *Thread, n *node) unix.Errno {
	fs.nodes.mu.Lock()
	memory := n.name == "mem"
	fs.nodes.mu.Unlock()
	if memory {
		return unix.EACCES
	}
	return t.become(0, 0, 1<<unix.CAP_DAC_OVERRIDE)
}

// asReader is asProcessReader for what reads a node that is open as fd, if it is in a proc
// file system. Elsewhere it does nothing.
func (fs *FS) asReader(t *Thread, n *node, fd int) unix.Errno {
	if n.tree.source(fd) != processes {
		return 0
	}
	return fs.asProcessReader(t, n)
}

// isOwnProcess reports whether a name is that of this process, or of one of its
// threads, in a proc file system, as below a volume that is the host's root
// directory. There a thread may read and write the memory of its own process, which
// the kernel permits whatever the thread's rights are (kernel/ptrace.c,
// __ptrace_may_access): so a guest does not see it. stx is the file's.
func isOwnProcess(dfd int, name string, stx *unix.Statx_t) bool {
	if stx.Mode&unix.S_IFMT != unix.S_IFDIR || stx.Dev_major != 0 {
		return false // most files with such a name
	}
	id, err := strconv.Atoi(name)
	if err != nil || id <= 0 || unix.Tgkill(os.Getpid(), id, 0) != nil {
		return false
	}
	var fs unix.Statfs_t
	return unix.Fstatfs(dfd, &fs) == nil && fs.Type == unix.PROC_SUPER_MAGIC
}
