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
			o.Exited(virtcontainers.Exit{ContainerID: id})
		}
		if got := len(o.lastOOM); got != 1 {
			t.Errorf("%d containers are remembered, 1 runs", got)
		}
	})
}
