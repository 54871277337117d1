package qemu

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"

	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// A disk's errors are in the log once, and a QEMU that invents disks does not fill it.
func TestFailingDisks(t *testing.T) {
	var out bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&out)
	ctx := log.WithLogger(context.Background(), logrus.NewEntry(logger))
	disks := failing{}
	failed := func(node string) {
		disks.note(ctx, "pod", qmp.Event{Event: "BLOCK_IO_ERROR", Data: map[string]any{
			"node-name": node, "operation": "write", "reason": "No space left on device",
		}})
	}
	failed("disk-x")
	failed("disk-x")
	disks.note(ctx, "pod", qmp.Event{Event: "STOP"})
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "disk=x ") || !strings.Contains(got, "No space left") {
		t.Errorf("log: %s", got)
	}
	for i := range 2 * maxFailing {
		failed(fmt.Sprintf("%d%s", i, strings.Repeat("y", 1<<20)))
	}
	if lines := strings.Count(out.String(), "\n"); lines != maxFailing || out.Len() > 1<<20 {
		t.Errorf("%d lines, %d bytes", lines, out.Len())
	}
}
