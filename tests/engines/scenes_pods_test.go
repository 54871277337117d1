package engines

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/katabox/katabox/tests/image"
)

// Pods of an engine without a daemon: Katabox has one machine for each.
func podScenes() []scene {
	return []scene{{name: "pods", needs: Pods, play: playPods}}
}

func playPods(ctx context.Context, s *stage) {
	pod := s.thing("pod", "pod")
	r := s.run(ctx, "pod", "create", "--name", pod, "--share", "net,uts,ipc",
		"--infra-image", image.Busybox, "--infra-command", "sleep 1000")
	s.expect("create", r.code, "0")
	web := s.container("web")
	if !s.start(ctx, web, webServer, "--pod", pod) {
		return
	}
	s.expect("ready", s.logged(ctx, web, "ready"), "true")
	s.expect("machines", s.machines(), "1")
	in := func(script string, flags ...string) result {
		return s.script(ctx, script, append([]string{"--pod", pod}, flags...)...)
	}
	s.expect("one network", in("wget -q -O - http://127.0.0.1"), `exit 0 "served\n"`)
	s.expect("one name", in("hostname").out() == s.run(ctx, "exec", web, "hostname").out(), "true")
	s.expect("own processes", in("cat /proc/1/comm"), `exit 0 "cat\n"`)
	s.expect("processes of a container", in("tr '\\0' ' ' </proc/1/cmdline | grep -c httpd", "--pid", "container:"+web), `exit 0 "1\n"`)
	s.expect("exit code", in("exit 42").code, "42")
	s.note("pod's state", s.run(ctx, "pod", "inspect", "--format", "{{.State}}", pod))
	s.expect("generate kube", s.run(ctx, "generate", "kube", pod).code, "0")
	s.expect("stop", s.run(ctx, "pod", "stop", "-t", "1", pod).code, "0")
	s.expect("start", s.run(ctx, "pod", "start", pod).code, "0")
	s.expect("again", s.run(ctx, "exec", web, "echo", "back"), `exit 0 "back\n"`)
	s.expect("remove", s.run(ctx, "pod", "rm", "-f", "-t", "0", pod).code, "0")
	s.expect("gone", s.run(ctx, "inspect", "--type", "container", web).code != 0, "true")
}

// machines returns how many machines run, or 1 for a runtime without machines,
// so that a pod has the same number with both.
func (s *stage) machines() string {
	if !s.runtime.VM {
		return "1"
	}
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err.Error()
	}
	count := 0
	for _, name := range names {
		if comm, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(comm), "qemu-system") {
			count++
		}
	}
	return fmt.Sprint(count)
}
