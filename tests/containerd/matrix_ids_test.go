package containerd

import (
	"context"
	"strings"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/services/tasks/v1"

	"github.com/katabox/katabox/tests/harness"
)

// idScenes try to make what already exists.
func idScenes() []scene {
	return []scene{
		{"same id", playSameID},
		{"shutdown", playShutdown},
		{"container without a pod", playSingle},
		{"pause killed", playPodEnd}, // the last one: the pod is gone
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

// playSingle plays the life of a container that has no pod, as ctr makes it.
func playSingle(ctx context.Context, s *stage) {
	c, err := s.d.Create(ctx, harness.ContainerConfig{Name: "single", Args: script(`trap "exit 3" TERM; echo ready; while :; do sleep 0.05; done`)})
	s.must(err, "create container")
	s.must(c.Start(ctx), "start container")
	s.says(ctx, &c.Process, "ready")
	at := target{id: c.Box.ID()}
	s.note("exec", "%s", execOnce(ctx, c, "one", "exit 7"))
	s.note("State", "%s", outcome(verbGet(s.d.Context(ctx), s, at)))
	s.note("kill", "%s", kind(c.Task.Kill(ctx, 15)))
	s.note("exit", "%s", s.code(ctx, &c.Process))
	s.note("State after", "%s", outcome(verbGet(s.d.Context(ctx), s, at)))
	s.note("exec after", "%s", execOnce(ctx, c, "two", "exit 8"))
	s.note("kill after", "%s", kind(c.Task.Kill(ctx, 15)))
	s.note("delete", "%s", outcome(engineDelete(s.d.Context(ctx), s, at)))
	s.note("State at last", "%s", outcome(verbGet(s.d.Context(ctx), s, at)))
	// runc's shim ends with its last container and may lose the last event.
	s.note("events", "%s", strings.TrimSuffix(s.events(ctx, c, "exit(init)"), ", delete"))
	if all := s.events(ctx, c, "delete"); s.d.Runtime().VM && !strings.HasSuffix(all, ", delete") {
		s.t.Errorf("%s: the delete was not told: %s", s.scene, all)
	}
	s.must(c.Remove(ctx), "remove container")
}

// playPodEnd kills the pod's first container while another runs.
func playPodEnd(ctx context.Context, s *stage) {
	c := s.sleeper(ctx)
	e := s.exec(ctx, c, harness.ExecConfig{Args: script("echo ready; exec sleep 100000")})
	s.says(ctx, e, "ready")
	pause := s.pod.Sandbox
	s.note("pause", "%d", s.end(ctx, &pause.Process))
	s.note("the other", "%s", s.soon(ctx, &c.Process))
	s.note("its exec", "%s", s.code(ctx, e))
	s.note("State of pause", "%s", s.do(ctx, "State", target{id: pause.Box.ID()}))
	s.note("State of the other", "%s", s.do(ctx, "State", target{id: c.Box.ID()}))
	s.note("delete the other", "%s", outcome(engineDelete(s.d.Context(ctx), s, target{id: c.Box.ID()})))
	s.note("events", "%s", s.events(ctx, c, "delete"))
}

// playShutdown asks a shim with containers to end: it must not.
func playShutdown(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{Args: []string{"sleep", "100000"}})
	at := target{id: c.Box.ID()}
	s.note("shutdown", "%s", s.do(ctx, "Shutdown", at))
	s.note("State", "%s", s.do(ctx, "State", at))
	s.note("killed", "%d", s.end(ctx, &c.Process))
	s.note("shutdown after the end", "%s", s.do(ctx, "Shutdown", at))
	s.note("delete", "%s", outcome(engineDelete(s.d.Context(ctx), s, at)))
}
