package virtcontainers

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// unreachable is a machine with private memory that its back ends cannot access.
type unreachable struct{ *fake.VM }

func (unreachable) MemoryOwner() hypervisor.MemoryOwner { return ended{} }

// PID is that of a process that runs.
func (unreachable) PID() int { return os.Getpid() }

// ended is a process that has ended.
type ended struct{}

func (ended) Hold() (pid int, ok bool) { return 0, false }
func (ended) Release()                 {}
func (ended) User() (uid, gid uint32)  { return 0, 0 }

// A machine whose memory cannot be accessed, and that does not end, keeps its record and its
// user id.
func TestUnreachableMachineStays(t *testing.T) {
	for name, failed := range map[string]error{"it ends": nil, "it stays": errors.New("it hangs")} {
		t.Run(name, func(t *testing.T) {
			monitor := new(fake.Monitor)
			vm, err := monitor.Launch(t.Context(), hypervisor.Spec{ID: "pod"})
			if err != nil {
				t.Fatal(err)
			}
			if failed != nil {
				monitor.Fail(fake.StepStop, failed)
			}
			dir := t.TempDir()
			s := &machine{blueprint: blueprint{id: "pod", platform: Platform{states: dir}}}
			if err := s.openState(t.Context()); err != nil {
				t.Fatal(err)
			}
			err = s.checkReach(t.Context(), unreachable{vm.(*fake.VM)})
			if err == nil || !strings.Contains(err.Error(), "reach private memory") || failed != nil && !errors.Is(err, failed) {
				t.Errorf("got %v", err)
			}
			if s.stays != (failed != nil) {
				t.Errorf("the machine stays: %t", s.stays)
			}
			_ = s.closeState(context.Background()) // says that it stays
			rec, err := persist.Load(dir, "pod")
			if (err == nil) != s.stays || err != nil && !errors.Is(err, os.ErrNotExist) || err == nil && rec.VM.PID != os.Getpid() {
				t.Errorf("the record is %+v, %v", rec, err)
			}
		})
	}
}
