package cri

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/cri/env"
)

// An emptyDir of medium Memory is the guest's memory, of the size that it has
// on the host, shared by all containers, including later ones.
func TestMemoryVolume(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		k := newKubelet(t, e)
		dir := k.fsGroup(k.memory("cache", "8m"), 123)
		part := k.subPath(dir, "a part/below", 0)
		p := runp(ctx, t, e, "memory")
		writer := p.start(ctx, t, forever, as(1001, 123, with(dir+":/cache", part+":/part")))
		reader := p.start(ctx, t, forever, with(dir+":/data:ro"))
		for id, path := range map[string]string{writer: "/cache", reader: "/data"} {
			if fstype, options, _ := p.mounted(ctx, t, id, path); fstype != "tmpfs" || !strings.Contains(options, "size=8192k") {
				t.Errorf("%s: %s %s, want a tmpfs of 8192k", path, fstype, options)
			}
		}
		p.sh(ctx, t, writer, "echo word > /cache/file; echo part > /part/file")
		if got := p.sh(ctx, t, reader, "cat /data/file; stat -c %u:%g /data/file; cat '/data/a part/below/file'"); got != "word\n1001:123\npart" {
			t.Errorf("in the other container: %q", got)
		}
		if got := p.sh(ctx, t, reader, "touch /data/new 2>/dev/null || echo read-only"); got != "read-only" {
			t.Errorf("write through a read-only mount: %q", got)
		}
		if got := p.sh(ctx, t, writer, "dd if=/dev/zero of=/cache/big bs=1M count=9 2>&1 | grep -o 'No space left'; rm /cache/big"); got != "No space left" {
			t.Errorf("more than the size: %q", got)
		}
		checkRestart(ctx, t, p, writer, dir, part)
		if _, err := os.Stat(dir + "/file"); err == nil {
			t.Error("the file is in the host's memory")
		}
	})
}

// checkRestart replaces a container by one with the same volumes.
func checkRestart(ctx context.Context, t *testing.T, p *pod, id, dir, part string) {
	t.Helper()
	p.do(ctx, t, "stop", id)
	p.do(ctx, t, "rm", id)
	again := p.start(ctx, t, forever, as(1001, 123, with(dir+":/cache", part+":/part")))
	if got := p.sh(ctx, t, again, "cat /cache/file /part/file; echo more > /part/file; cat '/cache/a part/below/file'"); got != "word\npart\nmore" {
		t.Errorf("after a restart: %q", got)
	}
}

// An emptyDir of medium Memory at /dev/shm is the usual way to more shared
// memory than 64 MiB.
func TestSharedMemory(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		k := newKubelet(t, e)
		dir := k.memory("shm", "96m")
		p := runp(ctx, t, e, "shm")
		usual := p.start(ctx, t, forever, nil)
		large := p.start(ctx, t, forever, with(dir+":/dev/shm"))
		for id, want := range map[string]string{usual: "size=65536k", large: "size=98304k"} {
			if fstype, options, _ := p.mounted(ctx, t, id, "/dev/shm"); fstype != "tmpfs" || !strings.Contains(options, want) {
				t.Errorf("/dev/shm: %s %s, want a tmpfs with %s", fstype, options, want)
			}
		}
		p.sh(ctx, t, usual, "echo word > /dev/shm/file")
		if got := p.sh(ctx, t, p.start(ctx, t, forever, nil), "cat /dev/shm/file"); got != "word" {
			t.Errorf("the pod's /dev/shm in another container: %q", got)
		}
		if got := p.sh(ctx, t, large, "ls /dev/shm"); got != "" {
			t.Errorf("in the volume: %q", got)
		}
	})
}

// An emptyDir of medium HugePages has the page size that it has on the host.
func TestHugepagesVolume(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		k := newKubelet(t, e)
		dir := k.volume("empty-dir", "huge")
		k.mount("nodev", dir, "hugetlbfs", 0, "pagesize=2M")
		p := runp(ctx, t, e, "hugepages")
		id := p.start(ctx, t, forever, with(dir+":/huge"))
		if fstype, options, _ := p.mounted(ctx, t, id, "/huge"); fstype != "hugetlbfs" || !strings.Contains(options, "pagesize=2M") {
			t.Errorf("/huge: %s %s", fstype, options)
		}
	})
}
