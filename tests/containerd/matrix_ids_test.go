package containerd

import (
	"context"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/services/tasks/v1"

	"github.com/katabox/katabox/tests/harness"
)

// idScenes ask for what is there already.
func idScenes() []scene {
	return []scene{
		{"same id", playSameID},
		{"shutdown", playShutdown},
	}
}

func playSameID(ctx context.Context, s *stage) {
	c := s.sleeper(ctx)
	id := c.Box.ID()
	_, err := s.engine.Create(s.d.Context(ctx), &tasks.CreateTaskRequest{ContainerID: id})
	s.note("create by containerd", "%s", kind(err))
	err = s.call(ctx, "Create", &task.CreateTaskRequest{ID: id, Bundle: s.d.BundleDir(id)}, &task.CreateTaskResponse{})
	s.note("create", "%s", kind(err))
	err = s.call(ctx, "Create", &task.CreateTaskRequest{ID: "new", Bundle: s.t.TempDir()}, &task.CreateTaskResponse{})
	s.note("create from an empty bundle", "%s", kind(err))
	err = s.call(ctx, "Create", &task.CreateTaskRequest{ID: "a/b", Bundle: s.d.BundleDir(id)}, &task.CreateTaskResponse{})
	s.note("create with an odd id", "%s", kind(err))
	s.note("the first one", "%s", execOnce(ctx, c, "alive", "exit 3"))
	s.note("killed", "%d", s.end(ctx, &c.Process))
	s.note("exit", "%s", s.events(ctx, c, "exit(init)"))
}

// playShutdown asks a shim to end that has containers: it must not.
func playShutdown(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{Args: []string{"sleep", "100000"}})
	at := target{id: c.Box.ID()}
	s.note("shutdown", "%s", s.do(ctx, "Shutdown", at))
	s.note("State", "%s", s.do(ctx, "State", at))
	s.note("killed", "%d", s.end(ctx, &c.Process))
	s.note("shutdown after the end", "%s", s.do(ctx, "Shutdown", at))
	s.note("delete", "%s", outcome(engineDelete(s.d.Context(ctx), s, at)))
}
