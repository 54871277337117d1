package files

import (
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// The end of a file is read, but nothing that a container may have put in its
// place or on the way to it.
func TestReadEnd(t *testing.T) {
	tree := newTree(t)
	long := strings.Repeat("x", api.MaxReadFile) + "the end"
	must(t, tree.Change(t.Context(), []*api.FileChange{
		tree.dir("d", 0o755), tree.file("d/f", "short"), tree.file("long", long), tree.file("empty", ""), tree.link("link", "d/f"), tree.link("way", "d"),
	}))
	must(t, os.WriteFile(tree.root+"/../outside/f", []byte("secret"), 0o600))
	must(t, unix.Mkfifo(tree.root+"/fifo", 0o600))
	for name, want := range map[string]string{"d/f": "short", "empty": "", "long": long[len("the end"):]} {
		if got, err := tree.ReadEnd(tree.root+"/"+name, api.MaxReadFile); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(want))
		}
	}
	if got, err := tree.ReadEnd(tree.root+"/d/f", 2); err != nil || string(got) != "rt" {
		t.Errorf("the last two bytes: %q, %v", got, err)
	}
	for name, want := range map[string]func(error) bool{
		"none": errdefs.IsNotFound, "way/f": errdefs.IsInvalidArgument, "../outside/f": errdefs.IsInvalidArgument, "": errdefs.IsInvalidArgument,
		"link": nil, "fifo": nil, "d": nil,
	} {
		got, err := tree.ReadEnd(tree.root+"/"+name, api.MaxReadFile)
		if err == nil || want != nil && !want(err) {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	if _, err := tree.ReadEnd(tree.root+"/d/f", api.MaxReadFile+1); !errdefs.IsInvalidArgument(err) {
		t.Errorf("more than there may be: %v", err)
	}
}
