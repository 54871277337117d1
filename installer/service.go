package installer

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// runner runs a program of the node and returns what it wrote to its standard
// output.
type runner func(ctx context.Context, program string, args ...string) ([]byte, error)

// runTimeout bounds a program of the node; systemctl waits until a service has
// started.
const runTimeout = 2 * time.Minute

// run runs a program in the node's root, which needs CAP_SYS_CHROOT.
func (n node) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	where := n.program(program)
	if where == "" {
		return nil, fmt.Errorf("the node has no program %s", program)
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, where, args...)
	cmd.Path, cmd.Err, cmd.Dir = where, nil, "/"
	if filepath.Clean(n.root) != "/" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: n.root}
	}
	// systemctl mistakes the mounted root of the node for a chroot, in which it
	// does nothing (systemd, docs/ENVIRONMENT.md).
	cmd.Env = []string{"PATH=" + strings.Join(programDirs, ":"), "SYSTEMD_IGNORE_CHROOT=1"}
	out, err := cmd.Output()
	if exit, ended := errors.AsType[*exec.ExitError](err); ended {
		return nil, fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, lastLine(string(exit.Stderr)))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return out, nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}

// runsNow reports whether a service runs after its restart, which does nothing for one
// that does not run. It is assumed if the node's processes cannot be seen.
func (n node) runsNow(service string) bool {
	processes, err := n.running(service)
	return err != nil || len(processes) > 0
}

// restart restarts the running services whose files have changed.
func (o *Options) restart(ctx context.Context) (restarted []string, err error) {
	n := o.node()
	restarted = []string{}
	pending, err := n.lines(pendingFile)
	if err != nil {
		return restarted, err
	}
	var services []string
	for _, service := range pending {
		if o.nothingToRestart(ctx, service) {
			o.say("the node has no service %s to restart", service)
			continue
		}
		services = append(services, service)
	}
	if len(services) == 0 {
		_, err = n.remove(pendingFile)
		return restarted, err
	}
	if o.Restart == "never" {
		o.say("restart %s for the change to take effect", strings.Join(services, " and "))
		return restarted, nil
	}
	if !n.exists("/run/systemd/system") {
		return nil, errors.New("the files are in place, but the node has no systemd that could restart " +
			strings.Join(services, " and ") + ": restart it by hand, then pass --restart never")
	}
	for _, service := range services {
		if _, err := o.run(ctx, "systemctl", "try-restart", service+".service"); err != nil {
			return nil, fmt.Errorf("the files are in place, but restarting %s failed: %w: restart it by hand, then pass --restart never", service, err)
		}
		if !n.runsNow(service) {
			o.say("%s is not running, nothing was restarted", service)
			continue
		}
		restarted = append(restarted, service)
		o.say("restarted %s", service)
	}
	_, err = n.remove(pendingFile)
	return restarted, err
}
