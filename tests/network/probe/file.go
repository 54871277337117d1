package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// fileUses are what "probe file" can do with a file that no shell can.
var fileUses = map[string]func(f *os.File, out io.Writer) error{
	// flock(2), and a lock of fcntl(2); both are released at the end.
	"flock": func(f *os.File, _ io.Writer) error { return lockAll(f) },
	"setlk": func(f *os.File, _ io.Writer) error { return lockRange(f) },
	"mmap":  useMapping,
	// Two processes that have the file: one locks it and answers in a mapping, the
	// other asks there.
	"answer": answerInMapping,
	"ask":    askInMapping,
	"xattr":  useAttribute,
	"acl":    useACL,
	"fsync":  func(f *os.File, _ io.Writer) error { return unix.Fsync(int(f.Fd())) },
}

func lockAll(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

func lockRange(f *os.File) error {
	return unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

func useFile(args []string, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("want a use and a path")
	}
	use := fileUses[args[0]]
	if use == nil {
		use = shareUses[args[0]]
	}
	if use == nil {
		return fmt.Errorf("unknown use %q of a file", args[0])
	}
	f, err := os.OpenFile(args[1], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := use(f, out); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "ok")
	return err
}

// useMapping writes the file's first byte through a shared mapping.
func useMapping(f *os.File, _ io.Writer) error {
	m, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	m[0] = 'M'
	if err := unix.Msync(m, unix.MS_SYNC); err != nil {
		return os.NewSyscallError("msync", err)
	}
	return unix.Munmap(m)
}

// useAttribute sets an extended attribute and reads it.
func useAttribute(f *os.File, out io.Writer) error {
	const name = "user.probe"
	if err := unix.Fsetxattr(int(f.Fd()), name, []byte("value"), 0); err != nil {
		return os.NewSyscallError("fsetxattr", err)
	}
	buf := make([]byte, 64)
	n, err := unix.Fgetxattr(int(f.Fd()), name, buf)
	if err != nil {
		return os.NewSyscallError("fgetxattr", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", buf[:n])
	return err
}

// useACL gives user 1000 the right to read the file, by a POSIX ACL: a version
// and entries of tag, permissions and id (linux/posix_acl_xattr.h).
func useACL(f *os.File, _ io.Writer) error {
	const version, noID = 2, ^uint32(0)
	acl := binary.LittleEndian.AppendUint32(nil, version)
	for _, e := range []struct {
		tag, permissions uint16
		id               uint32
	}{{0x01, 6, noID}, {0x02, 4, 1000}, {0x04, 0, noID}, {0x10, 4, noID}, {0x20, 0, noID}} {
		acl = binary.LittleEndian.AppendUint16(acl, e.tag)
		acl = binary.LittleEndian.AppendUint16(acl, e.permissions)
		acl = binary.LittleEndian.AppendUint32(acl, e.id)
	}
	return os.NewSyscallError("fsetxattr", unix.Fsetxattr(int(f.Fd()), "system.posix_acl_access", acl, 0))
}
