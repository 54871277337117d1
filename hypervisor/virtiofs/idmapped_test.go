package virtiofs

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// mappedOwner is what user 0 of an idmapped mount's files is shown as.
const mappedOwner = 100000

// mountMapped mounts an idmapped tmpfs, as the volumes of a pod with user namespaces
// are.
func mountMapped(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to mount needs root")
	}
	plain, mapped := t.TempDir(), t.TempDir()
	if err := unix.Mount("katabox-test", plain, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	unmountAtEnd(t, plain)
	clone, err := unix.OpenTree(unix.AT_FDCWD, plain, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(clone)
	users := userNamespace(t)
	defer users.Close()
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())}
	if err := unix.MountSetattr(clone, "", unix.AT_EMPTY_PATH, attr); err != nil {
		t.Skipf("this kernel cannot map the owners of tmpfs: %v", err)
	}
	if err := unix.MoveMount(clone, "", unix.AT_FDCWD, mapped, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		t.Fatal(err)
	}
	unmountAtEnd(t, mapped)
	return mapped
}

func unmountAtEnd(t *testing.T, at string) {
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// userNamespace makes a user namespace in which mappedOwner is root.
func userNamespace(t *testing.T) *os.File {
	t.Helper()
	cmd := exec.Command("sleep", "3600")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: mappedOwner, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
	if err := cmd.Start(); err != nil {
		t.Skipf("this test needs user namespaces: %v", err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	users, err := os.Open("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/user")
	if err != nil {
		t.Fatal(err)
	}
	return users
}

// What a container's user may do in an idmapped volume, where the host's root has no
// mapping.
func TestIdmapped(t *testing.T) {
	c := newClient(t, mountMapped(t))
	c.uid, c.gid = mappedOwner, mappedOwner
	f := c.create(1, "a", unix.O_RDWR, 0o600)
	ask[fuse.EntryOut](c, wire.Mkdir, 1, &fuse.MkdirIn{Mode: 0o700}, name("d"))
	ask[fuse.EntryOut](c, wire.Mknod, 1, &fuse.MknodIn{Mode: unix.S_IFIFO | 0o600}, name("p"))
	ask[fuse.EntryOut](c, wire.Symlink, 1, &fuse.InHeader{}, name("l"), name("a"))
	tmp := ask[fuse.CreateOut](c, wire.Tmpfile, 1, &fuse.CreateIn{Flags: unix.O_RDWR, Mode: unix.S_IFREG | 0o600}, name("t"))
	ask[fuse.EntryOut](c, wire.Link, 1, &fuse.LinkIn{Oldnodeid: tmp.NodeId}, name("t"))
	ask[fuse.EntryOut](c, wire.Link, 1, &fuse.LinkIn{Oldnodeid: f.NodeId}, name("b"))
	for what, flags := range map[string]uint32{"": 0, "without a replacement": unix.RENAME_NOREPLACE} {
		from, to := "a", "c"
		if flags != 0 {
			from, to = "b", "e"
		}
		if errno, _ := call(c, wire.Rename2, 1, &fuse.RenameIn{Newdir: 1, Flags: flags}, name(from), name(to)); errno != 0 {
			t.Errorf("rename %s: %v", what, errno)
		}
	}
	if errno, _ := call(c, wire.Rename, 1, &renameIn{Newdir: 1}, name("c"), name("g")); errno != 0 {
		t.Errorf("rename: %v", errno)
	}
	if out := c.mustLookup(1, "g"); out.Uid != mappedOwner || out.Nlink != 2 {
		t.Errorf("the file has the owner %d and %d names, want %d and 2", out.Uid, out.Nlink, mappedOwner)
	}
}

// renameIn is fuse.h's fuse_rename_in.
type renameIn struct {
	fuse.InHeader
	Newdir uint64
}

// The same by this machine's kernel.
func TestIdmappedByKernel(t *testing.T) {
	inMount(t, "TestIdmappedInside", mountDir(t, mountMapped(t), serving{policy: passthrough.Rootfs}))
}

// TestIdmappedInside is what TestIdmappedByKernel runs.
func TestIdmappedInside(t *testing.T) {
	t.Chdir(inside(t)) // the directories above are root's alone
	cmd := exec.Command("sh", "-ec", "umask 077; echo x >a; mv a b; ln b c; ln -s b l; mv l m; mkdir d; mv d e; mv c e/; test $(stat -c %h b) = 2")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: mappedOwner, Gid: mappedOwner}}
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}
