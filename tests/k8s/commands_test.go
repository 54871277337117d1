package k8s

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/k8s/node"
)

// What people type works as with runc.
func TestKubectl(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("typed", `
			containers:
			- name: reader
			  image: $BUSYBOX
			  stdin: true
			  command: [sh, -c, "echo hello; while read -r l; do echo got $l; done; exec sleep 1000"]
			- {name: web, image: $WEB}`)
		s.ready(pod)
		for _, part := range []struct {
			name string
			play func(*stage, string)
		}{
			{"exec", execs}, {"terminal", terminal}, {"attach", attach}, {"cp", copies}, {"port-forward", forward},
		} {
			began := time.Now()
			part.play(s, pod)
			s.Logf("%s: %.1f s", part.name, time.Since(began).Seconds())
		}
	})
}

// execs runs commands, with input, and with a code.
func execs(s *stage, pod string) {
	r := s.kubectl("exec", pod, "-c", "reader", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
	if r.Code != 7 || r.Out != "out\n" || !strings.Contains(r.Errors, "err\n") {
		s.Errorf("exec: %+v", r)
	}
	r = s.node.Kubectl(s.ctx, "input\n", "exec", "-i", pod, "-c", "reader", "--", "cat")
	if r.Code != 0 || r.Out != "input\n" {
		s.Errorf("exec with input: %+v", r)
	}
	r = s.kubectl("exec", pod, "-c", "reader", "--", "/no/such/program")
	if r.Code == 0 || !strings.Contains(r.Errors, "no such file") {
		s.Errorf("exec of no program: %+v", r)
	}
	codes := map[int]string{126: "/etc/passwd", 127: "nosuch", 137: "kill -9 $$", 143: "kill $$", 139: "kill -11 $$", 255: "exit 255"}
	for code, command := range codes {
		if r := s.kubectl("exec", pod, "-c", "reader", "--", "sh", "-c", command); r.Code != code {
			s.Errorf("exec of %q: %+v", command, r)
		}
	}
	big := s.must("exec", pod, "-c", "reader", "--", "sh", "-c", "yes 0123456789abcde | head -n 65536")
	if len(big) != 1<<20 {
		s.Errorf("output of an exec: %d bytes, want 1 MiB", len(big))
	}
}

// terminal runs a command on a terminal.
func terminal(s *stage, pod string) {
	cmd := s.node.KubectlCmd(s.ctx, "exec", "-it", pod, "-c", "reader", "--", "sh", "-c", "tty; exit 3")
	typed := exec.CommandContext(s.ctx, "script", "-qec", strings.Join(cmd.Args, " "), os.DevNull)
	typed.Args[2] = quoteAll(cmd.Args)
	typed.Env = cmd.Env
	r := node.Run(typed)
	if r.Code != 3 || !strings.Contains(r.Out, "/dev/pts/0") {
		s.Errorf("a terminal: %+v", r)
	}
}

// quoteAll quotes words for a shell.
func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// attach types into a container's own process.
func attach(s *stage, pod string) {
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	r := s.node.Kubectl(ctx, "a line\n", "attach", "-i", pod, "-c", "reader")
	if r.Code != 0 {
		s.Errorf("attach: %+v", r)
	}
	s.until("log after the attach", "hello\ngot a line\n", func() string { return s.must("logs", pod, "-c", "reader") })
}

// copies copies a directory into a container and back.
func copies(s *stage, pod string) {
	dir := s.TempDir()
	for name, size := range map[string]int{"small": 10, "big": 3 << 20} {
		if err := os.MkdirAll(filepath.Join(dir, "in"), 0o755); err != nil {
			s.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "in", name), []byte(strings.Repeat("x", size)), 0o600); err != nil {
			s.Fatal(err)
		}
	}
	s.must("cp", filepath.Join(dir, "in"), pod+":/copied", "-c", "reader")
	s.must("cp", pod+":/copied", filepath.Join(dir, "out"), "-c", "reader")
	if out, err := exec.Command("diff", "-r", filepath.Join(dir, "in"), filepath.Join(dir, "out")).CombinedOutput(); err != nil {
		s.Errorf("copied files differ: %v: %s", err, out)
	}
}

// forward reads the web server's page through a forwarded port.
func forward(s *stage, pod string) {
	port := map[string]string{runc: "18081", kata: "18082"}[s.runtime]
	s.forwarded(port+":80", func(ctx context.Context) {
		s.untilOr(ctx, "the page", "served", func() string {
			page, err := fetch(ctx, "http://127.0.0.1:"+port+"/")
			switch {
			case err != nil:
				return err.Error()
			case strings.Contains(page, "<html>"):
				return "served"
			}
			return page
		})
	}, "pod/"+pod)
}

// forwarded calls use while ports are forwarded to a target, which target names
// with kubectl's options.
func (s *stage) forwarded(ports string, use func(context.Context), target ...string) {
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	cmd := s.node.KubectlCmd(ctx, append(append([]string{"port-forward"}, target...), ports)...)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if r := node.Run(cmd); s.Failed() {
			s.Logf("kubectl port-forward: %+v", r)
		}
	}()
	defer func() {
		cancel()
		<-gone
	}()
	use(ctx)
}

// fetch reads a page.
func fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	return string(page), err
}
