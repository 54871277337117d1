package iptables

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/command"
)

const (
	// maxComplaint bounds what a tool's error message takes of an error, in bytes.
	maxComplaint = 4 << 10
	// waitDelay bounds the wait for the tool's pipes once it has ended or was
	// killed: a child that it left behind may hold them.
	waitDelay = time.Second
	// lockWait is how many seconds a restore waits for another program that
	// changes rules: a container's.
	lockWait = "5"
)

// Dirs are the directories of the guest's image in which tools are looked up.
var Dirs = []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"}

// Tools are the image's programs. Its methods may be called from several
// goroutines.
type Tools struct {
	Children command.Children
	// Dirs are where the programs are looked up, in this order.
	Dirs []string
}

// Save returns the rules for IPv4, or with ipv6 those for IPv6, as iptables-save
// writes them, at most api.MaxIPTables bytes. An image without the tool is an
// errdefs.ErrNotImplemented.
func (t *Tools) Save(ctx context.Context, ipv6 bool) ([]byte, error) {
	return t.run(ctx, program(ipv6, "save"), nil)
}

// Restore gives rules to iptables-restore, at most api.MaxIPTables bytes. Errors
// are as Save's, or what the tool says.
func (t *Tools) Restore(ctx context.Context, ipv6 bool, rules []byte) error {
	tool := program(ipv6, "restore")
	if len(rules) > api.MaxIPTables {
		return fmt.Errorf("%s: rules of %d bytes, want at most %d: %w", tool, len(rules), api.MaxIPTables, errdefs.ErrInvalidArgument)
	}
	_, err := t.run(ctx, tool, rules, "--wait="+lockWait)
	return err
}

func program(ipv6 bool, verb string) string {
	if ipv6 {
		return "ip6tables-" + verb
	}
	return "iptables-" + verb
}

// run runs a tool to its end, or to the end of ctx, which kills it.
func (t *Tools) run(ctx context.Context, tool string, input []byte, args ...string) ([]byte, error) {
	path, err := t.find(tool)
	if err != nil {
		return nil, err
	}
	out, complaint := bounded{most: api.MaxIPTables}, bounded{most: maxComplaint}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{}, "/", waitDelay
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &complaint
	if err := command.Start(cmd, t.Children); err != nil {
		return nil, fmt.Errorf("%s: %w", tool, err)
	}
	err = command.Wait(cmd, t.Children)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", tool, context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %s", tool, err, strings.TrimSpace(complaint.kept.String()))
	case out.cut:
		return nil, fmt.Errorf("%s: it writes more than %d bytes of rules: %w", tool, out.most, errdefs.ErrOutOfRange)
	}
	return out.kept.Bytes(), nil
}

func (t *Tools) find(tool string) (string, error) {
	for _, dir := range t.Dirs {
		path := filepath.Join(dir, tool)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("the guest image has no %s: use one that has it (make guest-image-iptables, and initrd in the configuration): %w", tool, errdefs.ErrNotImplemented)
}

// bounded keeps the first bytes that are written to it, and drops the others.
// The buffer is not embedded: io.Copy would read into it past Write.
type bounded struct {
	kept bytes.Buffer
	most int
	cut  bool // some were dropped
}

// Write implements io.Writer.
func (b *bounded) Write(data []byte) (int, error) {
	fits := data[:min(len(data), b.most-b.kept.Len())]
	b.cut = b.cut || len(fits) < len(data)
	_, _ = b.kept.Write(fits) // never fails
	return len(data), nil
}
