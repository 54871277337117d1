package guesttest

import (
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// Limits of a container's memory that are raised, lifted, and set again: each update
// says what runc's can.
func TestGuestMemoryUpdates(t *testing.T) {
	m := guestOnly(t)
	const id = "remembered"
	m.pause(t, id)
	for _, update := range []struct{ memory, want string }{
		{`{"limit":104857600,"swap":209715200}`, "104857600 104857600"},
		{`{"limit":-1}`, "max max"},
		{`{"limit":314572800}`, "314572800 max"},
		{`{"limit":314572800,"swap":314572800}`, "314572800 0"},
		{`{"limit":419430400,"swap":0}`, "419430400 0"},
		{`{"limit":209715200,"checkBeforeUpdate":true}`, "209715200 0"},
	} {
		_, err := m.task.Update(t.Context(), &taskapi.UpdateTaskRequest{ID: id, Resources: &anypb.Any{Value: []byte(`{"memory":` + update.memory + `}`)}})
		if err != nil {
			t.Errorf("%s: %v", update.memory, err)
		}
		const cgroup = "/sys/fs/cgroup/katabox/" + id
		limits := fileIn(t, cgroup+"/memory.max") + fileIn(t, cgroup+"/memory.swap.max")
		if got := strings.Join(strings.Fields(limits), " "); got != update.want {
			t.Errorf("%s: limits %s, want %s", update.memory, got, update.want)
		}
	}
}

// A limit of memory below what a container uses is refused, and its processes live: the
// kernel would kill them.
func TestGuestMemoryInUse(t *testing.T) {
	m := guestOnly(t)
	const id, cgroup = "full", "/sys/fs/cgroup/katabox/full"
	m.pause(t, id)
	update := func(memory string) error {
		_, err := m.task.Update(t.Context(), &taskapi.UpdateTaskRequest{ID: id, Resources: &anypb.Any{Value: []byte(`{"memory":` + memory + `}`)}})
		return errgrpc.ToNative(err)
	}
	if err := update(`{"limit":67108864}`); err != nil {
		t.Fatal(err)
	}
	if r := m.exec(t, id, "fill", process("dd if=/dev/zero of=/dev/filled bs=1M count=20 2>/dev/null; echo $?")); r.out != "0\n" {
		t.Fatalf("%+v", r)
	}
	if err := update(`{"limit":8388608}`); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "linux.resources.memory.limit") {
		t.Errorf("a limit below what is in use: %v", err)
	}
	if got := strings.TrimSpace(fileIn(t, cgroup+"/memory.max")); got != "67108864" {
		t.Errorf("the limit is %s", got)
	}
	if r := m.exec(t, id, "empty", process("rm /dev/filled; echo lives")); r.out != "lives\n" {
		t.Errorf("%+v", r)
	}
	if err := update(`{"limit":8388608}`); err != nil {
		t.Errorf("once it is free: %v", err)
	}
}
