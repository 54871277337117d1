package containerd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

type fileScript struct{ name, script string }

// fileScripts are what containers do with the files of a volume, at /v (and at
// /ro, the same, read-only). Each prints what it saw. "held" is locked by the
// host's process, "fifo" is a FIFO, "probe" a program and "sub" a mount of the
// host's. /hard is a volume that the host has mounted noexec; below /late, which is
// read-only, the host mounts something later.
var fileScripts = []fileScript{
	{"owner and mode", "stat -c '%n %F %a %u:%g %s %h' given sub/inside fifo"},
	{"create with umask", "umask 027; echo a > new; mkdir newdir; stat -c '%a %u:%g' new newdir"},
	{"chmod with sticky and set-id bits", "touch m; for m in 4755 2755 1777 0; do chmod $m m; stat -c %a m; done"},
	{"chown", "touch o; chown 1234:5678 o; stat -c %u:%g o; chown 0:0 o; stat -c %u:%g o"},
	{"chown clears set-id bits", "touch s; chmod 6755 s; chown 5:5 s; stat -c %a s"},
	{"chown of a link", "ln -s given l1; chown -h 7:8 l1; stat -c '%F %u:%g' l1 given"},
	{"a user without permission", "touch private; chmod 600 private; su app -c 'cat private'; su app -c 'echo x > given'; su app -c 'touch byapp'"},
	{"a user's own files", "mkdir open; chmod 777 open; su app -c 'echo x > open/f'; stat -c %u:%g open/f; su app -c 'rm given'"},
	{"a sticky directory", "mkdir -p tmp; chmod 1777 tmp; touch tmp/root; su app -c 'rm -f tmp/root'; ls tmp"},
	{"a directory's group is inherited", "mkdir g; chown 0:1000 g; chmod 2775 g; touch g/f; mkdir g/d; stat -c '%a %g' g/f g/d"},
	{"times", "touch -d '2001-02-03 04:05:06' t; stat -c '%Y %X' t; touch -r t t2; stat -c %Y t2"},
	{"hard links", "echo a > h1; ln h1 h2; echo b >> h2; cat h1; stat -c %h h1; rm h1; cat h2; stat -c %h h2; ln newdir h3"},
	{"symbolic links", "ln -s given s1; readlink s1; ln -s /etc/hostname s2; readlink s2; ln -s s3 s3; cat s3"},
	{"rename over a file", "echo a > r1; echo b > r2; exec 3< r2; mv r1 r2; cat r2; cat <&3"},
	{"rename over a directory", "mkdir -p d1 d2/x; mv -T d1 d2; mkdir d3; mv -T d1 d3; ls -d d1 d2 d3"},
	{"rename out of the volume", "echo a > out; mv out /tmp/out; cat /tmp/out; ls out"},
	{"a file that is removed while open", "echo a > u; exec 3<> u; rm u; cat <&3; ls u"},
	{"a directory that is not empty", "mkdir -p full/x; rmdir full; rm full; ls full"},
	{"append by two writers", "rm -f ap; for i in 1 2 3 4; do (for j in $(seq 50); do echo x >> ap; done) & done; wait; wc -l < ap"},
	{"truncate and grow", "echo abcdef > tr; truncate -s 3 tr; cat tr; truncate -s 10 tr; od -c tr | head -3; : > tr; stat -c %s tr"},
	{"a file with a hole", "dd if=/dev/zero of=sparse bs=1 count=1 seek=10000000 2>/dev/null; stat -c %s sparse; [ $(stat -c %b sparse) -lt 100 ] && echo sparse"},
	{"preallocate", "fallocate -l 65536 fa; stat -c %s fa"},
	{"sync", "echo a > sy; sync sy; ./probe file fsync sy; cat sy"},
	{"mapped and executed", "cp probe probe2; ./probe2 file"},
	{"text file busy", ": > started; ./probe serve tcp://127.0.0.1:9 > started & until grep -q ready started; do sleep 1; done; echo x > probe; kill $!; ./probe file"},
	{"device nodes", "mknod null c 1 3; stat -c '%F %t:%T' null"},
	{"its own FIFO", "mkfifo p; echo through > p & cat p; wait"},
	{"flock", "./probe file flock lk 2>&1; touch lk; ./probe file flock lk; ./probe file setlk lk"},
	{"lock that the host holds", "./probe file flock held"},
	{"shared mapping", "echo xyz > mm; ./probe file mmap mm; cat mm"},
	{"extended attributes", "touch xa; ./probe file xattr xa"},
	{"POSIX ACL", "touch acl; ./probe file acl acl; stat -c %a acl"},
	{"names", "for n in 'a b' 'ä' '-x' 'q\"'; do echo y > \"./$n\"; cat \"./$n\"; done; touch $(printf '%0255d' 1) && echo long; touch $(printf '%0256d' 1)"},
	{"many files", "mkdir many; cd many; for i in $(seq 300); do : > f$i; done; ls | wc -l; rm -rf ../many; ls .."},
	{"current directory removed", "mkdir cwd; cd cwd; rmdir ../cwd; touch x"},
	{"mount below the volume", "cat sub/inside; echo w > sub/made; cat sub/made; mv given sub/given 2>&1 && cat sub/given; mv sub/given given; rmdir sub"},
	{"hard link across mounts", "ln given sub/linked"},
	{"read-only", "cd /ro; cat given; echo x > given; touch new2; rm given; mkdir x; chmod 777 given; chown 1 given; mv given g; ln given g; touch -d 2001-01-01 given"},
	{"read-only, remounted", "mount -o remount,rw /ro; touch /ro/x"},
	{"file system's numbers", "df -P . | tail -1 | awk '{print ($2 > 0), ($4 > 0), $6}'; [ $(stat -f -c %s .) -ge 512 ] && echo ok; stat -f -c %l ."},
	{"mount options", "grep -E ' /(v|ro) ' /proc/mounts | awk '{print $2, substr($4, 1, 2)}'"},
	{"flags of the host's mount", "cd /hard; ./run; grep ' /hard ' /proc/mounts | grep -o 'nosuid\\|noexec'"},
	{"a link to /proc", "grep -c ' /v ' /table; wc -l < /table | grep -q \"^$(wc -l < /proc/1/mounts)$\" && echo same"},
	{"a later mount below a read-only volume", "cd /late; echo x > top; echo y > sub/new; cat sub/new"},
	{"what the host made", "cat later; stat -c %s later"},
}

// shimScripts are the same, but an external file server does otherwise. Below "proc"
// the host has mounted a proc file system.
var shimScripts = []fileScript{
	{"what the host's kernel says", "cat proc/sys/kernel/ostype proc/1/comm; wc -w < proc/uptime; wc -l < proc/1/status"},
}

// fileDifferences are the rows that differ in a virtual machine, as documented
// in docs/compat.md.
var fileDifferences = []difference{
	{
		rows: []string{"lock that the host holds"}, runc: "exit 1: probe: resource temporarily unavailable", kata: "exit 0: ok",
		why: "locks (`flock`, `fcntl`) are held in the guest's kernel: they apply among the pod's containers, but not to the host or to other pods",
	},
	{
		rows: []string{"POSIX ACL"}, runc: "exit 0: ok / 640", kata: "exit 0: probe: fsetxattr: operation not supported / 644",
		why: "Linux's FUSE has no ACLs on mounts below the one that it began with, and each volume and root file system is one; " +
			"of an ACL that a file has on the host the guest sees the group's bits, which are the mask",
	},
	{
		rows: []string{"mount options"}, runc: "exit 0: /v rw / /ro ro", kata: "exit 0: /v rw / /ro rw",
		why: "a read-only volume with a writable mount below it shows `rw` in `/proc/mounts`: the host refuses the writes (EROFS), and the guest, " +
			"which sees one file system, cannot; with `rro`, or without such a mount and without `rslave`, it says `ro`",
	},
}

// Containers' operations on a volume's files have the same results as with
// runc.
func TestVolumeFiles(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		runc := playFiles(d.Context(ctx), t, startPeer(t, d))
		kata := playFiles(d.Context(ctx), t, d)
		if t.Failed() {
			return
		}
		for _, complaint := range compare(d.Release().Version(ctx), runc, kata, fileDifferences) {
			t.Error(complaint)
		}
		t.Log(runc.beside(kata))
	})
}

// playFiles runs the scripts in a container of one daemon.
func playFiles(ctx context.Context, t *testing.T, d *harness.Daemon) *sheet {
	t.Helper()
	dir := filesOfVolume(t)
	shared, sub := sharedVolume(t)
	c := add(ctx, t, newPod(ctx, t, d), harness.ContainerConfig{
		Name: "files", Args: []string{"sleep", "100000"},
		Spec: []oci.SpecOpts{oci.WithMounts([]specs.Mount{
			{Type: "bind", Source: dir, Destination: "/v", Options: []string{"rbind", "rw"}},
			{Type: "bind", Source: dir, Destination: "/ro", Options: []string{"rbind", "ro"}},
			{Type: "bind", Source: hardenedVolume(t), Destination: "/hard", Options: []string{"rbind", "rprivate"}},
			{Type: "bind", Source: linkToMounts(t), Destination: "/table", Options: []string{"rbind", "ro"}},
			{Type: "bind", Source: shared, Destination: "/late", Options: []string{"rbind", "rslave", "ro"}},
		})},
	})
	write(t, filepath.Join(dir, "later"), "made later")
	mountTmpfs(t, sub, 0)
	rows := fileScripts
	if harness.ExternalVirtiofsd() == "" {
		rows = slices.Concat(rows, shimScripts)
	}
	s := newSheet()
	for _, row := range rows {
		e, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: script("cd /v; { " + row.script + "\n} 2>&1")})
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		if err := s.note(row.name, outcomeOf(code, e.Out.String())); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// linkToMounts makes a link like Debian's /etc/mtab.
func linkToMounts(t *testing.T) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "mtab")
	if err := os.Symlink("/proc/mounts", link); err != nil {
		t.Fatal(err)
	}
	return link
}

// outcomeOf returns what is compared of a row.
func outcomeOf(code uint32, out string) string {
	return fmt.Sprintf("exit %d: %s", code, strings.ReplaceAll(strings.TrimSpace(out), "\n", " / "))
}

// filesOfVolume makes a directory with what the scripts need.
func filesOfVolume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "given"), "from the host\n")
	write(t, filepath.Join(dir, "held"), "")
	held, err := os.Open(filepath.Join(dir, "held"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	buildProbe(t, dir)
	sub := filepath.Join(dir, "sub")
	for _, err := range []error{
		syscall.Flock(int(held.Fd()), syscall.LOCK_EX),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o640),
		os.Mkdir(sub, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	mountTmpfs(t, sub, 0)
	write(t, filepath.Join(sub, "inside"), "of the mount\n")
	mountProc(t, filepath.Join(dir, "proc"))
	return dir
}
