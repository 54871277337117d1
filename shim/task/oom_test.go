package task

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/virtcontainers"
)

// counting is an engine that counts events.
type counting map[string]int

func (c counting) Publish(_ context.Context, topic string, _ proto.Message) { c[topic]++ }

// One OOM event of a container is sent each second, and nothing is remembered of
// containers that have ended.
func TestOOMEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := counting{}
		o := &observer{
			ctx: t.Context(), publisher: engine, exits: newExitFIFOs(""),
			execEnded: func(string, string) {}, saveExit: func(virtcontainers.Exit) error { return nil },
		}
		for range 10 {
			o.OutOfMemory("c")
		}
		time.Sleep(oomPause)
		o.OutOfMemory("c")
		if got := engine["/tasks/oom"]; got != 2 {
			t.Errorf("%d events, want 2", got)
		}
		for i := range 100 {
			id := fmt.Sprint(i)
			o.OutOfMemory(id)
			o.Exited(virtcontainers.Exit{ContainerID: id, ExecID: "e"})
			o.Ending(id)
		}
		if got := len(o.ooms); got != 1 {
			t.Errorf("%d containers are remembered, 1 runs", got)
		}
	})
}

// While a note that one container ran out of memory is written slowly, other events
// are handled. The container's end comes after the note, which its engine reads then.
func TestSlowOOMNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, noted := counting{}, false
		o := &observer{
			ctx: t.Context(), publisher: engine, exits: newExitFIFOs(""),
			execEnded: func(string, string) {}, saveExit: func(virtcontainers.Exit) error { return nil },
			saveOOM: func(string) error { time.Sleep(5 * time.Second); noted = true; return nil },
		}
		begin := time.Now()
		o.OutOfMemory("c")
		o.Ending("other")
		if took := time.Since(begin); took != 0 {
			t.Errorf("other events waited %v", took)
		}
		o.Ending("c")
		if took := time.Since(begin); !noted || took != 5*time.Second {
			t.Errorf("the end came after %v, noted: %v", took, noted)
		}
		o.saveOOM = func(string) error { time.Sleep(time.Hour); return nil }
		o.OutOfMemory("hung")
		begin = time.Now()
		o.Ending("hung")
		if took := time.Since(begin); took != noteWait {
			t.Errorf("the end waited %v for a disk that hangs", took)
		}
		time.Sleep(time.Hour) // until the disk answers
	})
}
