package guesttest

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/agent/api"
)

// byStage has the agent start an exec by libcontainer's own stage.
func byStage(p *specs.Process) {
	p.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_BE, Priority: 4}
}

// about prints all that a process can see of how it was started.
const about = `
id; pwd; umask; env | sort; ulimit -a; tty; echo done >/dev/stdout
grep -E '^(Umask|Uid|Gid|Groups|NoNewPrivs|Sig(Blk|Ign|Cgt)|Cap|Seccomp|Cpus_allowed_list|THP)' /proc/$$/status
cat /proc/$$/oom_score_adj /proc/$$/cgroup; ls /proc/$$/fd; ls -ldn /proc/$$ | cut -c1-34
for n in /proc/$$/ns/*; do readlink $n; done
set -- $(cat /proc/$$/stat); [ $$ = $5 ] && [ $$ = $6 ] && echo leads its session, parent $4, terminal $7, nice ${19}
grep -o "_ses.$CONTAINER:" /proc/keys | sort -u
`

// Both ways of starting an exec must come to the same, whatever the container and
// the process are.
func TestGuestExecIsAsByStage(t *testing.T) {
	m := guestOnly(t)
	user := func(p *specs.Process) {
		p.User = specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{5, 6}}
	}
	containers := map[string]func(*specs.Spec){
		"plain":  func(*specs.Spec) {},
		"userns": inUserNamespace,
		"strict": func(spec *specs.Spec) {
			spec.Process.User.Umask, spec.Process.OOMScoreAdj = ptr(uint32(0o27)), ptr(500)
			spec.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 99, Hard: 199}}
			spec.Process.Capabilities.Bounding = []string{"CAP_KILL"}
		},
	}
	processes := map[string]func(*specs.Process){
		"root": func(*specs.Process) {},
		"user": user,
		"capabilities": func(p *specs.Process) {
			user(p)
			caps := []string{"CAP_KILL", "CAP_CHOWN", "CAP_NONSENSE"}
			p.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Permitted: caps, Effective: caps, Inheritable: caps, Ambient: caps[:1]}
			p.NoNewPrivileges = true
		},
		"environment": func(p *specs.Process) {
			p.Env, p.Cwd = append(p.Env, "A=1", "HOME=", "A=2", "HOME=/tmp", "B="), "/tmp"
		},
		"limits": func(p *specs.Process) {
			p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 77, Hard: 2048}, {Type: "RLIMIT_NPROC", Soft: 500, Hard: 500}, {Type: "RLIMIT_CORE"}}
		},
		"processes": func(p *specs.Process) { // than the agent may have itself
			p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NPROC", Soft: 100000, Hard: 100000}}
		},
	}
	for container, change := range containers {
		spec := shell("trap 'exit 7' TERM; while :; do sleep 1000 & wait $!; done")
		change(spec)
		id := "as-" + container
		m.start(t, id, spec)
		for name, change := range processes {
			p := process(about)
			p.Capabilities, p.Env = spec.Process.Capabilities, append(p.Env, "CONTAINER="+id)
			change(p)
			own := m.exec(t, id, "own-"+name, p)
			byStage(p)
			stage := m.exec(t, id, "stage-"+name, p)
			if diff := cmp.Diff(stage.out+stage.errs, own.out+own.errs); diff != "" || !strings.Contains(own.out, "leads its session") {
				t.Errorf("%s, %s: -by stage +own: %s\n%s", container, name, diff, own.out)
			}
		}
		m.sameTerminal(t, id)
	}
}

// A container with a user namespace that has as many processes as it may can be
// looked into.
func TestGuestExecAtTheLimitOfProcesses(t *testing.T) {
	m := guestOnly(t)
	spec := shell("exec sleep 1000")
	inUserNamespace(spec)
	m.start(t, "full", spec)
	p := process("ulimit -u")
	p.Capabilities = spec.Process.Capabilities
	p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NPROC", Soft: 1, Hard: 1}}
	if r := m.exec(t, "full", "one-more", p); r.out != "1\n" {
		t.Errorf("the limit is %q, want 1; %s", r.out, r.errs)
	}
}

func (m *machine) sameTerminal(t *testing.T, id string) {
	t.Helper()
	script := "stty size; tty; ls -ln $(tty) | cut -c1-40; echo x >$(tty); echo $HOME; exit 3"
	p := process(script)
	p.User, p.Terminal, p.ConsoleSize = specs.User{UID: 1000, GID: 1001}, true, &specs.Box{Height: 33, Width: 77}
	own := m.execTerminal(t, id, "own-terminal", p)
	byStage(p)
	stage := m.execTerminal(t, id, "stage-terminal", p)
	if diff := cmp.Diff(stage, own); diff != "" || !strings.HasPrefix(own, "33 77\r\n/dev/pts/0\r\n") {
		t.Errorf("%s: -by stage +own: %s\n%s", id, diff, own)
	}
}

// execTerminal runs a process at a terminal to its end and gives what it wrote.
func (m *machine) execTerminal(t *testing.T, id, execID string, p *specs.Process) string {
	t.Helper()
	m.addExec(t, id, execID, &taskapi.ExecProcessRequest{Terminal: true, Stdin: "y", Stdout: "y"}, p)
	in, out := m.bind(t, id, execID, api.Stream_STREAM_STDIN), m.bind(t, id, execID, api.Stream_STREAM_STDOUT)
	defer in.Close()
	if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: id, ExecID: execID}); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if x := m.exit(t, id, execID); err != nil || x.GetStatus() != 3 {
		t.Errorf("%s: %v, %v", execID, x, err)
	}
	if _, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: id, ExecID: execID}); err != nil {
		t.Error(err)
	}
	return string(text)
}

func (m *machine) addExec(t *testing.T, id, execID string, req *taskapi.ExecProcessRequest, p *specs.Process) {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	req.ID, req.ExecID, req.Spec = id, execID, &anypb.Any{Value: text}
	if _, err := m.task.Exec(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// What fails does so with the same words, and leaves nothing.
func TestGuestExecFailsAsByStage(t *testing.T) {
	m := guestOnly(t)
	m.pause(t, "fails")
	if r := m.exec(t, "fails", "script", process("echo '#!/no/such' >/tmp/script; printf '\\177ELF' >/tmp/elf; echo >/tmp/data; chmod 755 /tmp/script /tmp/elf; mkdir -m 700 /tmp/closed")); r.exit.GetStatus() != 0 {
		t.Fatal(r)
	}
	defer m.exec(t, "fails", "clean", process("rm -rf /tmp/script /tmp/elf /tmp/data /tmp/closed"))
	tests := map[string]func(*specs.Process){
		"nosuch":     func(p *specs.Process) { p.Args = []string{"nosuch"} },
		"nopath":     func(p *specs.Process) { p.Args, p.Env = []string{"ls"}, nil },
		"nofile":     func(p *specs.Process) { p.Args = []string{"/no/such"} },
		"directory":  func(p *specs.Process) { p.Args = []string{"/tmp"} },
		"data":       func(p *specs.Process) { p.Args = []string{"/tmp/data"} },
		"script":     func(p *specs.Process) { p.Args = []string{"/tmp/script"} },
		"elf":        func(p *specs.Process) { p.Args = []string{"/tmp/elf"} },
		"cwd":        func(p *specs.Process) { p.Cwd = "/no/such" },
		"closed cwd": func(p *specs.Process) { p.Cwd, p.User.UID = "/tmp/closed", 1000 },
		"variable":   func(p *specs.Process) { p.Env = append(p.Env, "NONSENSE") },
		"nameless":   func(p *specs.Process) { p.Env = append(p.Env, "=1") },
		"nul":        func(p *specs.Process) { p.Env = append(p.Env, "A=\x00") },
	}
	for name, change := range tests {
		p := process("echo started")
		change(p)
		own := m.startOrError(t, "fails", "own-"+strings.ReplaceAll(name, " ", "-"), p)
		byStage(p)
		if diff := cmp.Diff(m.startOrError(t, "fails", "stage-"+strings.ReplaceAll(name, " ", "-"), p), own); diff != "" {
			t.Errorf("%s: -by stage +own: %s", name, diff)
		}
	}
}

// startOrError is why a process could not be started, or what it wrote.
func (m *machine) startOrError(t *testing.T, id, execID string, p *specs.Process) string {
	t.Helper()
	m.addExec(t, id, execID, &taskapi.ExecProcessRequest{Stdout: "y", Stderr: "y"}, p)
	out, errs := m.output(t, id, execID, api.Stream_STREAM_STDOUT), m.output(t, id, execID, api.Stream_STREAM_STDERR)
	defer func() {
		if _, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: id, ExecID: execID}); err != nil {
			t.Error(err)
		}
	}()
	if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: id, ExecID: execID}); err != nil {
		return err.Error()
	}
	exit := m.exit(t, id, execID)
	return string(rune('0'+exit.GetStatus()/100)) + <-out + <-errs
}

// A container that delegates its cgroup has processes only below it
// (Documentation/admin-guide/cgroup-v2.rst, "no internal process").
func TestGuestExecBesideInit(t *testing.T) {
	m := guestOnly(t)
	spec := shell("trap 'exit 7' TERM; while :; do sleep 1000 & wait $!; done")
	for i := range spec.Mounts {
		if spec.Mounts[i].Type == "cgroup" {
			spec.Mounts[i].Options = []string{"rw"}
		}
	}
	m.start(t, "beside", spec)
	if r := m.exec(t, "beside", "delegate", process("cd /sys/fs/cgroup && mkdir inner && for p in $(cat cgroup.procs); do echo $p >inner/cgroup.procs; done; echo +pids >cgroup.subtree_control")); r.exit.GetStatus() != 0 {
		t.Fatalf("delegate: %+v", r)
	}
	if r := m.exec(t, "beside", "after", process("cat /proc/self/cgroup")); r.out != "0::/inner\n" {
		t.Errorf("%+v", r)
	}
}
