package engines

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/image"
)

// Files of a container: copies, volumes, its own root.
func fileScenes() []scene {
	return []scene{
		{name: "cp", short: true, play: playCopy},
		{name: "cp stopped", play: playCopyStopped},
		{name: "volumes", play: playVolumes},
		{name: "below", play: playBelow},
		{name: "root", play: playRoot},
		{name: "commit", play: playCommit},
	}
}

// copies plays cp both ways between the host and a container.
func copies(ctx context.Context, s *stage, name, dir string) {
	in := s.file(dir, "in", "from the host\n")
	s.expect("in", s.run(ctx, "cp", in, name+":/tmp/in").code, "0")
	tree := filepath.Join(dir, "tree", "sub")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		s.t.Fatal(err)
	}
	s.file(tree, "leaf", "leaf\n")
	s.expect("tree in", s.run(ctx, "cp", filepath.Dir(tree), name+":/tmp/tree").code, "0")
	s.expect("out", s.run(ctx, "cp", name+":/made/out", filepath.Join(dir, "out")).code, "0")
	s.expect("out: content", read(filepath.Join(dir, "out")), "from the container\n")
	s.expect("tree out", s.run(ctx, "cp", name+":/made", filepath.Join(dir, "made")).code, "0")
	s.expect("tree out: content", read(filepath.Join(dir, "made", "out")), "from the container\n")
	s.expect("nothing out", s.run(ctx, "cp", name+":/nowhere", filepath.Join(dir, "nowhere")).code != 0, "true")
}

// read returns a file's content, or the error without the file's path.
func read(path string) string {
	data, err := os.ReadFile(path)
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err.Error()
	}
	return string(data)
}

const copied = "cat /tmp/in /tmp/tree/sub/leaf"

func playCopy(ctx context.Context, s *stage) {
	name := s.container("main")
	if !s.start(ctx, name, "mkdir /made; echo from the container >/made/out; echo ready; sleep 1000") {
		return
	}
	s.expect("ready", s.logged(ctx, name, "ready"), "true")
	copies(ctx, s, name, s.t.TempDir())
	s.expect("in: content", s.run(ctx, "exec", name, "sh", "-c", copied), `exit 0 "from the host\nleaf\n"`)
	copiesOverSeen(ctx, s, name)
	// A link in the container must lead to the container's files.
	dir := s.t.TempDir()
	target := s.file(dir, "host", "the host's\n")
	s.run(ctx, "exec", name, "sh", "-c", fmt.Sprintf("mkdir -p %s; echo the container\\'s >%s; ln -s %s /link", dir, target, target))
	s.note("link", s.run(ctx, "cp", "-L", name+":/link", filepath.Join(dir, "got")).code)
	s.note("link: content", read(filepath.Join(dir, "got")))
	s.run(ctx, "cp", s.file(dir, "evil", "evil\n"), name+":/link")
	s.expect("link: the host's", read(target), "the host's\n")
}

// copiesOverSeen copies to names that the container has looked up before: one that
// it has read, and one that was not there.
func copiesOverSeen(ctx context.Context, s *stage, name string) {
	s.run(ctx, "exec", name, "sh", "-c", "echo old >/made/read; cat /made/read; ls /tmp/go")
	dir := s.t.TempDir()
	s.expect("over a file", s.run(ctx, "cp", s.file(dir, "new", "another one\n"), name+":/made/read").code, "0")
	s.expect("to an absent name", s.run(ctx, "cp", s.file(dir, "go", "go\n"), name+":/tmp/go").code, "0")
	waits := "n=0; until grep -q another /made/read && test -f /tmp/go || test $n = 20; do sleep 0.5; n=$((n+1)); done; cat /made/read /tmp/go"
	s.expect("seen in the container", s.run(ctx, "exec", name, "sh", "-c", waits), `exit 0 "another one\ngo\n"`)
}

func playCopyStopped(ctx context.Context, s *stage) {
	name := s.container("main")
	script := "if test -e /tmp/in; then " + copied + "; else mkdir /made; echo from the container >/made/out; fi"
	if !s.start(ctx, name, script) {
		return
	}
	s.expect("end", ends(ctx, s, name, "exited 0"), "exited 0")
	copies(ctx, s, name, s.t.TempDir())
	s.expect("in: content", s.run(ctx, "start", "-a", name), `exit 0 "from the host\nleaf\n"`)
}

func playVolumes(ctx context.Context, s *stage) {
	dir := s.t.TempDir()
	file := s.file(dir, "file", "hosted\n")
	r := s.script(ctx, "cat /v/file; echo guest >/v/new; chmod 600 /v/new; chown 12:34 /v/new", "-v", dir+":/v")
	s.expect("directory", r, `exit 0 "hosted\n"`)
	s.expect("directory: on the host", read(filepath.Join(dir, "new")), "guest\n")
	s.expect("read only", s.script(ctx, "cat /v/file; echo x >/v/no || exit 9", "-v", dir+":/v:ro"), `exit 9 "hosted\n"`)
	s.expect("file", s.script(ctx, "cat /f; echo more >>/f", "-v", file+":/f"), `exit 0 "hosted\n"`)
	s.expect("file: on the host", read(file), "hosted\nmore\n")
	s.expect("at /dev/shm", s.script(ctx, "cat /dev/shm/new; echo shm >/dev/shm/made", "-v", dir+":/dev/shm"), `exit 0 "guest\n"`)
	s.expect("at /dev/shm: on the host", read(filepath.Join(dir, "made")), "shm\n")
	s.note("no source", s.script(ctx, "true", "--mount", "type=bind,source=/no/such/place,target=/v").code)

	volume := s.thing("volume", "named")
	s.expect("create volume", s.run(ctx, "volume", "create", volume).code, "0")
	s.expect("volume", s.script(ctx, "echo kept >/v/file", "-v", volume+":/v").code, "0")
	s.expect("volume again", s.script(ctx, "cat /v/file", "-v", volume+":/v"), `exit 0 "kept\n"`)
	s.note("volume over files", s.script(ctx, "ls /etc/passwd /data | head -3", "-v", volume+"-2:/data"))
	s.made = append(s.made, thing{"volume", volume + "-2"})
	r = s.script(ctx, "for d in /t /dev/shm; do df -k $d | tail -1 | awk '{print $2}'; done; touch /t/x; stat -c %a /o; "+
		"grep -o '/o tmpfs [^ ]*noexec' /proc/mounts | grep -c noexec",
		"--tmpfs", "/t:size=1m", "--tmpfs", "/o:size=1m,mode=1770,noexec", "--shm-size", "8m")
	s.expect("tmpfs", r.line(0), "1024")
	s.expect("shm", r.line(1), "8192")
	s.expect("tmpfs options", r.line(2)+" "+r.line(3), "1770 1")
}

// playBelow notes what a read-only volume makes of a mount below it.
func playBelow(ctx context.Context, s *stage) {
	dir := s.t.TempDir()
	sub := filepath.Join(dir, "sub")
	if err := errors.Join(os.Mkdir(sub, 0o755), unix.Mount("sub", sub, "tmpfs", 0, "")); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = unix.Unmount(sub, unix.MNT_DETACH) })
	s.note("read only", s.script(ctx, "touch /v/new && exit 8; touch /v/sub/new || exit 9", "-v", dir+":/v:ro").code)
}

func playRoot(ctx context.Context, s *stage) {
	r := s.script(ctx, "echo x >/file && exit 1; echo y >/t/file; cat /t/file", "--read-only", "--tmpfs", "/t")
	s.expect("read only", r, `exit 0 "y\n"`)
	name := s.container("main")
	if !s.start(ctx, name, "sleep 1000") {
		return
	}
	in := func(script string) result { return s.run(ctx, "exec", name, "sh", "-c", script) }
	s.note("masked", in("cat /proc/kcore 2>/dev/null | wc -c; ls /sys/firmware /proc/scsi 2>/dev/null | wc -l"))
	s.expect("read-only proc", in("echo 1 >/proc/sys/vm/drop_caches 2>/dev/null || echo refused"), `exit 0 "refused\n"`)
	// runc makes /dev/core if its kernel has a /proc/kcore.
	s.note("devices", in("ls /dev | grep -vx core | sort | tr '\\n' ' '"))
	s.expect("device nodes", in("head -c 4 /dev/zero | wc -c; echo x >/dev/null; head -c 4 /dev/urandom | wc -c"), `exit 0 "4\n4\n"`)
	s.expect("big file", in("dd if=/dev/zero of=/big bs=1M count=64 2>/dev/null; stat -c %s /big"), `exit 0 "67108864\n"`)
}

func playCommit(ctx context.Context, s *stage) {
	name := s.container("main")
	if !s.start(ctx, name, "echo mine >/file; echo ready; sleep 1000") {
		return
	}
	s.expect("ready", s.logged(ctx, name, "ready"), "true")
	tag := "katabox.test/" + s.thing("image", "made") + ":latest"
	s.made[len(s.made)-1].name = tag
	s.expect("commit", s.run(ctx, "commit", name, tag).code, "0")
	s.expect("run", s.run(ctx, "run", "--rm", tag, "cat", "/file"), `exit 0 "mine\n"`)
	s.expect("still running", s.run(ctx, "exec", name, "cat", "/file"), `exit 0 "mine\n"`)
	s.note("base image", s.run(ctx, "run", "--rm", image.Busybox, "cat", "/file").code)
}
