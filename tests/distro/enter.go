package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// insideArg makes this program process 1 of the other release.
const insideArg = "inside"

// view describes the other release's root file system.
type view struct {
	Root    string   `json:"root"`
	Binds   []bind   `json:"binds"`
	Command []string `json:"command"`
}

// bind shows a file or directory of this host's in there.
type bind struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// source is where the checkout lies in there.
const source = "/src"

// enter runs the command in the root file system and returns its exit code.
func (r *root) enter(ctx context.Context, command []string) (int, error) {
	v, err := r.view(ctx, command)
	if err != nil {
		return 1, err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return 1, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", insideArg, string(data))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	// Process 1 passes on the signal and waits for the command; the remaining
	// processes end with it.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	fmt.Fprintf(r.out, "distro: in Debian %s: %s\n", r.release, strings.Join(command, " "))
	err = cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return 1, cause
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// view puts together what is seen in there.
func (r *root) view(ctx context.Context, command []string) (view, error) {
	v := view{Root: r.tree(), Command: command, Binds: []bind{{r.layout.Root, source}}}
	for _, name := range []string{"bin", "build"} {
		if err := os.MkdirAll(r.own(name), 0o755); err != nil {
			return view{}, fmt.Errorf("make %s: %w", r.own(name), err)
		}
		if err := os.MkdirAll(r.layout.Root+"/"+name, 0o755); err != nil {
			return view{}, fmt.Errorf("make %s: %w", name, err)
		}
		v.Binds = append(v.Binds, bind{r.own(name), source + "/" + name})
	}
	for _, key := range []string{"GOROOT", "GOMODCACHE", "GOCACHE"} {
		out, err := exec.CommandContext(ctx, "go", "env", key).Output()
		if err != nil {
			return view{}, fmt.Errorf("go env %s: %w", key, err)
		}
		from := strings.TrimSpace(string(out))
		to := inGuest[key]
		if err := os.MkdirAll(from, 0o755); err != nil {
			return view{}, fmt.Errorf("make %s: %w", from, err)
		}
		v.Binds = append(v.Binds, bind{from, to})
	}
	for _, path := range []string{"/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/apt/apt.conf.d", "/sys", "/dev"} {
		if _, err := os.Stat(path); err == nil {
			v.Binds = append(v.Binds, bind{path, path})
		}
	}
	return v, nil
}

// inGuest has the paths of Go's directories in there.
var inGuest = map[string]string{
	"GOROOT": "/usr/local/go", "GOMODCACHE": "/root/go/pkg/mod", "GOCACHE": "/root/.cache/go-build",
}

// environ returns a login's environment there, with what this host needs to
// reach its archives.
func environ() []string {
	env := []string{
		"HOME=/root", "USER=root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin",
		"LANG=C.UTF-8", "TERM=" + os.Getenv("TERM"), "GOFLAGS=-buildvcs=false", "GOTOOLCHAIN=local",
	}
	for _, name := range []string{"GOPROXY", "GOSUMDB", "GONOSUMDB", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "CI"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
