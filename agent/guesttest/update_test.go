package guesttest

import (
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
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
