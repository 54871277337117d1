package virtiofs

import (
	"bytes"
	"fmt"
	"os"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// file is one of the world's open files.
func (w *world) file(s step) int { return w.files[s.n%len(w.files)] }

func (w *world) opened(s step, fd int, err error) string {
	if err != nil {
		return err.Error()
	}
	_ = unix.Close(w.file(s))
	w.files[s.n%len(w.files)] = fd
	var st unix.Stat_t
	_ = unix.Fstat(fd, &st)
	return attributes(&st)
}

// said describes an error or, on success, what is at a path.
func said(err error, path string) string {
	if err != nil {
		return err.Error()
	}
	return look(path)
}

func numbered(n int, err error) string { return fmt.Sprint(n, err) }

func text(s step) []byte { return bytes.Repeat([]byte(s.a+s.b), 1+s.m/4) }

// kindsOfSteps are the operations.
var kindsOfSteps = map[string]func(w *world, s step) string{
	"mkdir":    func(_ *world, s step) string { return said(unix.Mkdir(s.a, uint32(s.m)&0o7777|0o700), s.a) },
	"mkdir2":   func(_ *world, s step) string { return said(unix.Mkdir(s.b, 0o777), s.b) },
	"rmdir":    func(_ *world, s step) string { return said(unix.Rmdir(s.a), s.a) },
	"unlink":   func(_ *world, s step) string { return said(unix.Unlink(s.a), s.a) },
	"symlink":  func(_ *world, s step) string { return said(unix.Symlink(s.b, s.a), s.a) },
	"link":     func(_ *world, s step) string { return said(unix.Link(s.a, s.b), s.b) },
	"chmod":    func(_ *world, s step) string { return said(unix.Chmod(s.a, uint32(s.m)&0o7777|0o600), s.a) },
	"chown":    func(_ *world, s step) string { return said(unix.Lchown(s.a, s.n%3, s.m%3), s.a) },
	"truncate": func(_ *world, s step) string { return said(unix.Truncate(s.a, int64(s.n)), s.a) },
	"mknod": func(_ *world, s step) string {
		return said(unix.Mknod(s.a, []uint32{unix.S_IFIFO, unix.S_IFCHR, unix.S_IFSOCK}[s.n%3]|0o640, 0), s.a)
	},
	"rename": func(_ *world, s step) string {
		flags := []uint{0, 0, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE}[s.n%4]
		err := unix.Renameat2(unix.AT_FDCWD, s.a, unix.AT_FDCWD, s.b, flags)
		return said(err, s.b) + look(s.a)
	},
	"utimes": func(_ *world, s step) string {
		ts := []unix.Timespec{{Sec: int64(s.n), Nsec: int64(s.m)}, {Sec: int64(s.m), Nsec: int64(s.n)}}
		err := unix.UtimesNanoAt(unix.AT_FDCWD, s.a, ts, unix.AT_SYMLINK_NOFOLLOW)
		var st unix.Stat_t
		_ = unix.Lstat(s.a, &st)
		return fmt.Sprint(err, err == nil && st.Mtim.Sec == int64(s.m) && st.Mtim.Nsec == int64(s.n))
	},
	"readlink": func(_ *world, s step) string { p, err := os.Readlink(s.a); return fmt.Sprint(p, err) },
	"setxattr": func(_ *world, s step) string {
		return fmt.Sprint(unix.Setxattr(s.a, "user."+s.b[:1], text(s)[:s.m%(1+s.m/4)], s.n%3))
	},
	"getxattr": func(_ *world, s step) string {
		p := make([]byte, s.n%300)
		n, err := unix.Getxattr(s.a, "user."+s.b[:1], p)
		return fmt.Sprintf("%d %v %x", n, err, p)
	},
	"listxattr": func(_ *world, s step) string {
		p := make([]byte, 4096)
		n, err := unix.Listxattr(s.a, p)
		names := strings.Split(string(p[:max(n, 0)]), "\x00")
		sort.Strings(names)
		return fmt.Sprint(names, err)
	},
	"removexattr": func(_ *world, s step) string { return fmt.Sprint(unix.Removexattr(s.a, "user."+s.b[:1])) },
	"readdir": func(_ *world, s step) string {
		entries, err := os.ReadDir(s.a)
		var b strings.Builder
		for _, e := range entries {
			fmt.Fprint(&b, e.Name(), e.Type(), " ")
		}
		return fmt.Sprint(b.String(), err)
	},
	"stat": func(_ *world, s step) string { return look(s.a) },
	"open": func(w *world, s step) string {
		flags := []int{unix.O_RDWR, unix.O_RDONLY, unix.O_RDWR | unix.O_CREAT, unix.O_RDWR | unix.O_CREAT | unix.O_EXCL,
			unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC, unix.O_RDWR | unix.O_APPEND | unix.O_CREAT}[s.m%6]
		fd, err := unix.Open(s.a, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o666)
		return w.opened(s, fd, err)
	},
	"tmpfile": func(w *world, s step) string {
		fd, err := unix.Open(".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o640)
		return w.opened(s, fd, err)
	},
	"pwrite": func(w *world, s step) string { return numbered(unix.Pwrite(w.file(s), text(s), int64(s.n))) },
	"write":  func(w *world, s step) string { return numbered(unix.Write(w.file(s), text(s))) },
	"pread": func(w *world, s step) string {
		p := make([]byte, s.m*4)
		n, err := unix.Pread(w.file(s), p, int64(s.n/2))
		return fmt.Sprintf("%d %v %x", n, err, p[:min(max(n, 0), 64)])
	},
	"ftruncate": func(w *world, s step) string { return fmt.Sprint(unix.Ftruncate(w.file(s), int64(s.m*4))) },
	"fstat": func(w *world, s step) string {
		var st unix.Stat_t
		err := unix.Fstat(w.file(s), &st)
		return fmt.Sprint(attributes(&st), err)
	},
	"fsync": func(w *world, s step) string { return fmt.Sprint(unix.Fsync(w.file(s))) },
	"fallocate": func(w *world, s step) string {
		mode := []uint32{0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_KEEP_SIZE | unix.FALLOC_FL_PUNCH_HOLE}[s.n%3]
		return fmt.Sprint(unix.Fallocate(w.file(s), mode, int64(s.n), int64(s.m)))
	},
	"copy": func(w *world, s step) string {
		from, to := int64(s.m), int64(s.n)
		return numbered(unix.CopyFileRange(w.file(s), &from, w.files[s.m%len(w.files)], &to, s.m, 0))
	},
	"close": func(w *world, s step) string {
		err := unix.Close(w.file(s))
		w.files[s.n%len(w.files)] = -1
		return fmt.Sprint(err)
	},
	"mmap": func(w *world, s step) string {
		p, err := unix.Mmap(w.file(s), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		var st unix.Stat_t
		if err != nil || unix.Fstat(w.file(s), &st) != nil || st.Size < 4096 {
			_ = unix.Munmap(p)
			return fmt.Sprint(err)
		}
		copy(p[s.m%4000:], s.a)
		return fmt.Sprint(unix.Munmap(p))
	},
}
