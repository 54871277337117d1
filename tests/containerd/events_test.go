package containerd

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/tests/harness"
)

func TestEventsComeInOrder(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		recorder := d.Record(ctx)
		defer recorder.Close()
		pod := newPod(ctx, t, d)
		c := idle(ctx, t, pod)
		id := c.Box.ID()
		if _, _, err := c.ExecRun(ctx, harness.ExecConfig{Args: script("exit 5")}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.KillAndWait(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		list, err := recorder.Await(ctx, id, "delete")
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"create", "start", "exec-added", "exec-started", "exit(e1)=5",
			fmt.Sprintf("exit(%s)=137", id), "delete",
		}
		if diff := cmp.Diff(want, words(list)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func words(list []harness.Event) []string {
	found := make([]string, len(list))
	for i, e := range list {
		found[i] = e.String()
	}
	return found
}
