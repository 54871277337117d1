package passthrough

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A file of NFS has no descriptor when it is removed, unless the guest has it open: the
// host's client would rename it.
func TestRemovalOnNFS(t *testing.T) {
	newLinked(t, 2, func(l linked) {
		l.fs.nodes.trees[l.fs.nodes.byID[0].tree.mount].contents.Store(remote)
		a := l.look(rootID, "a").id
		for name, isOpen := range map[string]bool{"0": false, "1": true} {
			n := l.look(a, name)
			l.usable(n, "a file before its removal") // which leaves a descriptor
			if isOpen {
				fd, err := unix.Dup(int(os.Stdin.Fd()))
				if err != nil {
					t.Fatal(err)
				}
				l.fs.nodes.get(n.id)
				l.fs.handles.all = append(l.fs.handles.all, &handle{fd: fd, node: n})
			}
			l.unlink(a, name, func(int) error {
				if has := n.slot >= 0; has != isOpen {
					return fmt.Errorf("%s has a descriptor: %t, want %t", name, has, isOpen)
				}
				return nil
			})
			if n.name != "" {
				t.Errorf("%s has the name %q after its removal", name, n.name)
			}
			if isOpen {
				l.usable(n, "an open file")
			} else if _, errno := l.fs.fd(l.th, n); errno != unix.ESTALE {
				t.Errorf("a removed file: %v, want ESTALE", errno)
			}
		}
	})
}
