package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

const (
	// shareRounds is how often each peer does all of the work.
	shareRounds = 3
	// shareExecs is how many execs a round takes, shareRuns how many whole runs.
	shareExecs, shareRuns = 10, 3
	freshMiB              = 64
)

//go:embed files/files.c
var filesSource string

// annotationDaemon names what serves a pod's share (docs/configuration.md).
const annotationDaemon = "io.katacontainers.config.hypervisor.virtio_fs_daemon"

// peer is one way to provide a container's files.
type peer struct {
	name    string
	runtime harness.Runtime
	// daemon serves the share of a VM; empty for the shim.
	daemon string
}

// sharePeers are runc, QEMU's virtiofsd where it is installed, and the shim.
func sharePeers() []peer {
	peers := []peer{{name: "runc", runtime: harness.Runc}}
	if harness.HasVirtiofsd() {
		peers = append(peers, peer{name: "virtiofsd", runtime: harness.Kata, daemon: harness.DefaultVirtiofsd})
	}
	return append(peers, peer{name: "shim", runtime: harness.Kata})
}

// shareConfig lets a pod's annotation name the daemon.
var shareConfig = fmt.Sprintf("enable_annotations = [\"virtio_fs_daemon\"]\nvalid_virtio_fs_daemon_paths = [%q]\n", harness.DefaultVirtiofsd)

func (p peer) annotations() map[string]string {
	if p.daemon == "" {
		return nil
	}
	return map[string]string{annotationDaemon: p.daemon}
}

func (p peer) spec() oci.SpecOpts { return oci.WithAnnotations(p.annotations()) }

// sharing is what files cost each peer, in milliseconds, and its pods in MiB.
type sharing struct {
	peers []peer
	// rows has the names of what was measured, in order; took is by row and
	// peer.
	rows []string
	took map[string]map[string]series
	pods map[string]podMemory
}

func (s *sharing) add(row string, p peer, ms float64) {
	if s.took[row] == nil {
		s.took[row] = make(map[string]series)
		s.rows = append(s.rows, row)
	}
	s.took[row][p.name] = append(s.took[row][p.name], ms)
}

// measureShare alternates between the peers, so that other load on the machine
// affects all of them.
func measureShare(ctx context.Context, d *harness.Daemon) (_ *sharing, err error) {
	dir, err := os.MkdirTemp(d.Dir, "share")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := fillVolume(ctx, dir); err != nil {
		return nil, err
	}
	s := &sharing{peers: sharePeers(), took: make(map[string]map[string]series), pods: make(map[string]podMemory)}
	for i := range shareRounds {
		for _, p := range s.peers {
			fmt.Fprintf(os.Stderr, "bench: files, round %d of %d, %s\n", i+1, shareRounds, p.name)
			if err := s.round(ctx, d, p, dir); err != nil {
				return nil, fmt.Errorf("files by %s: %w", p.name, err)
			}
		}
	}
	for _, p := range s.peers {
		if !p.runtime.VM {
			continue
		}
		if s.pods[p.name], err = measurePod(ctx, d, p.spec()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// fillVolume puts the program that works in files into a directory, and an
// archive of this project's source.
func fillVolume(ctx context.Context, dir string) error {
	if err := harness.CompileC(ctx, filesSource, filepath.Join(dir, "files")); err != nil {
		return err
	}
	layout, err := harness.FindLayout()
	if err != nil {
		return err
	}
	archive := exec.CommandContext(ctx, "git", "archive", "--output", filepath.Join(dir, "source.tar"), "HEAD")
	archive.Dir = layout.Root
	if msg, err := archive.CombinedOutput(); err != nil {
		return fmt.Errorf("make an archive of the source: %w: %s", err, msg)
	}
	return nil
}

// round does all of the work once, in a new container: a guest has cached
// nothing.
func (s *sharing) round(ctx context.Context, d *harness.Daemon, p peer, dir string) (err error) {
	fresh, err := freshFiles(dir)
	if err != nil {
		return err
	}
	c, err := d.Create(ctx, harness.ContainerConfig{
		Name: "share", Args: []string{"sleep", "1000"}, Runtime: p.runtime,
		Spec: []oci.SpecOpts{p.spec(), oci.WithMounts([]specs.Mount{
			{Destination: "/volume", Type: "bind", Source: dir, Options: []string{"rbind", "rw"}},
		})},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Remove(context.WithoutCancel(ctx))) }()
	if err := c.Start(ctx); err != nil {
		return err
	}
	if err := s.work(ctx, c, p, "volume", append([]string{"/volume/files", "/volume"}, fresh...)...); err != nil {
		return err
	}
	if err := s.work(ctx, c, p, "root", "/volume/files", "/root"); err != nil {
		return err
	}
	if err := s.execs(ctx, c, p); err != nil {
		return err
	}
	return s.runs(ctx, d, p)
}

// freshFiles makes two files that no guest has read.
func freshFiles(dir string) ([]string, error) {
	var inside []string
	for _, name := range []string{"fresh1", "fresh2"} {
		path := filepath.Join(dir, name)
		if err := os.RemoveAll(path); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, make([]byte, freshMiB<<20), 0o644); err != nil {
			return nil, err
		}
		inside = append(inside, "/volume/"+name)
	}
	return inside, nil
}

// work runs the program and reads its lines.
func (s *sharing) work(ctx context.Context, c *harness.Container, p peer, where string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*runTimeout)
	defer cancel()
	run, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: args})
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("%v: exit code %d: %s%s", args, code, run.Out, run.Err)
	}
	for line := range strings.Lines(run.Out.String()) {
		var name string
		var ms float64
		if _, err := fmt.Sscanf(line, "%s %g\n", &name, &ms); err != nil {
			return fmt.Errorf("read %q of %v: %w", line, args, err)
		}
		s.add(where+": "+workNames[name], p, ms)
	}
	return run.Remove(ctx)
}

// workNames are files.c's, in words.
var workNames = map[string]string{
	"write":   "write 64 MiB and fsync",
	"write4k": "write 2,000 x 4 KiB at random and fsync",
	"read":    "read 64 MiB",
	"read4k":  "read 2,000 x 4 KiB at random",
	"create":  "create 10,000 files",
	"stat":    "list and stat them",
	"remove":  "remove them",
}

// execs unpacks an archive and runs programs of the root file system.
func (s *sharing) execs(ctx context.Context, c *harness.Container, p peer) error {
	took, err := timeExec(ctx, c, harness.ExecConfig{Args: []string{"sh", "-c", "mkdir /root/source && tar -xf /volume/source.tar -C /root/source"}})
	if err != nil {
		return err
	}
	s.add("root: untar this project's source", p, milliseconds(took))
	for range shareExecs {
		took, err := timeExec(ctx, c, harness.ExecConfig{Args: []string{"true"}})
		if err != nil {
			return err
		}
		s.add("exec of true", p, milliseconds(took))
	}
	return nil
}

// runs measures whole containers, from nothing to nothing.
func (s *sharing) runs(ctx context.Context, d *harness.Daemon, p peer) error {
	var options []string
	for name, value := range p.annotations() {
		options = append(options, "--annotation", name+"="+value)
	}
	for range shareRuns {
		ms, err := timeCtrRun(ctx, d, p.runtime, options...)
		if err != nil {
			return err
		}
		s.add("ctr run --rm "+filepath.Base(image.Busybox)+" true", p, ms)
	}
	return nil
}
