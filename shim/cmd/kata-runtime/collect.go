package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/management"
	"github.com/katabox/katabox/shim/monitor"
)

const collectDescription = "The archive has versions, the output of check and env, facts about the host, and for each running pod its record, timeline,\n" +
	"metrics, console and log. It has no environment variables, no annotations, and no configuration values of keys that name a\n" +
	"password, a token or a secret. It does have names of pods and files on the host: review it before you send it."

func collectCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "collect", Usage: "write an archive for a bug report", Description: collectDescription,
		Flags: []cli.Flag{
			configFlag(),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "the `FILE`, in place of katabox-TIME.tar.gz"},
			jsonFlag(),
		},
		Before: noArguments,
		Action: func(ctx context.Context, c *cli.Command) error { return writeArchive(ctx, c, h) },
	}
}

// writeArchive makes the archive. A signal ends it, and removes the file.
func writeArchive(ctx context.Context, c *cli.Command, h host) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	now := time.Now().UTC()
	name := c.String("output")
	if name == "" {
		name = "katabox-" + now.Format("20060102-150405") + ".tar.gz"
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("%w: choose another file with --output", err)
	}
	a := newArchive(f, strings.TrimSuffix(filepath.Base(name), ".tar.gz"), now)
	p := newProgress(c.Root().ErrWriter)
	h.collect(ctx, configFile(c), a, p.step)
	p.end()
	if err := errors.Join(a.close(), f.Close(), ctx.Err()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(name))
	}
	if c.Bool("json") {
		return writeJSON(c.Root().Writer, map[string]any{"file": name, "files": a.files})
	}
	_, err = fmt.Fprintf(c.Root().Writer, "%s: %d files; review it before you send it\n", name, a.files)
	return err
}

// archive is a tar file being written. After the first error it writes nothing
// more and keeps the error.
type archive struct {
	compressed *gzip.Writer
	tar        *tar.Writer
	dir        string
	at         time.Time
	files      int
	err        error
}

func newArchive(w io.Writer, dir string, at time.Time) *archive {
	compressed := gzip.NewWriter(w)
	return &archive{compressed: compressed, tar: tar.NewWriter(compressed), dir: dir, at: at}
}

// add adds a file; if its content could not be obtained, the file contains the
// error.
func (a *archive) add(name string, data []byte, err error) {
	if a.err != nil {
		return
	}
	if err != nil {
		name, data = name+".error", []byte(err.Error()+"\n")
	}
	a.err = a.tar.WriteHeader(&tar.Header{Name: path.Join(a.dir, name), Mode: 0o600, Size: int64(len(data)), ModTime: a.at})
	if a.err == nil {
		_, a.err = a.tar.Write(data)
		a.files++
	}
}

// addJSON adds a value as JSON.
func (a *archive) addJSON(name string, v any, err error) {
	var data bytes.Buffer
	if err == nil {
		err = writeJSON(&data, v)
	}
	a.add(name, data.Bytes(), err)
}

func (a *archive) close() error { return errors.Join(a.err, a.tar.Close(), a.compressed.Close()) }

// hostFiles are facts about the host, at most maxHostFile bytes of each.
var hostFiles = []string{
	"/proc/version", "/proc/meminfo", "/proc/loadavg", "/proc/cpuinfo", "/proc/filesystems", "/proc/modules", "/proc/cgroups",
	"/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory", "/etc/os-release",
}

const maxHostFile = 64 << 10

// collect adds everything to the archive, and calls step before each part that may
// take seconds.
func (h host) collect(ctx context.Context, configFile string, a *archive, step func(string)) {
	step("collect: this host")
	a.addJSON("check.json", newReport(h.check(ctx, configFile)), nil)
	e, err := h.env(ctx, configFile, nil)
	if err == nil {
		hideSecrets(e.Config)
	}
	a.addJSON("env.json", e, err)
	for _, name := range hostFiles {
		data, err := h.readAll(name, maxHostFile)
		a.add("host"+name, data, err)
	}
	pods, err := h.pods(ctx)
	a.addJSON("pods.json", pods, err)
	running, err := monitor.Pods(h.records)
	if err != nil {
		return // pods.json has the error
	}
	h.collectPods(ctx, running, a, step)
	step("collect: the engines' log")
	h.collectLog(ctx, running, a)
}

// collectPods asks the pods side by side: each may keep it waiting.
func (h host) collectPods(ctx context.Context, pods []monitor.Pod, a *archive, step func(string)) {
	files := make([][]podFile, len(pods))
	var mu sync.Mutex // guards done, and orders the steps
	done := 0
	monitor.Each(pods, func(i int, p monitor.Pod) {
		files[i] = h.podFiles(ctx, p)
		mu.Lock()
		defer mu.Unlock()
		done++
		step(fmt.Sprintf("collect: %d of %d pods", done, len(pods)))
	})
	for _, f := range slices.Concat(files...) {
		a.add(f.name, f.data, f.err)
	}
}

// podFile is a file about a pod, or why it could not be obtained.
type podFile struct {
	name string
	data []byte
	err  error
}

func (h host) podFiles(ctx context.Context, p monitor.Pod) []podFile {
	dir := "pods/" + filepath.Base(p.Dir) + "/"
	record, err := os.ReadFile(filepath.Join(p.Dir, "state.json"))
	files := []podFile{{dir + "state.json", record, err}}
	metrics, err := p.Ask(ctx, "/metrics")
	files = append(files, podFile{dir + "metrics.txt", metrics, err})
	var starts bytes.Buffer
	t, err := h.timeline(ctx, p.ID)
	if err == nil {
		err = writeJSON(&starts, t)
	}
	files = append(files, podFile{dir + "timeline.json", starts.Bytes(), err})
	for name, path := range map[string]string{"log.jsonl": management.LogPath, "console.txt": management.ConsolePath} {
		text, err := p.Ask(ctx, path)
		files = append(files, podFile{dir + name, secretParam.ReplaceAll(text, []byte("${1}"+hidden)), err})
	}
	return files
}

// secretKey matches keys whose values must not be disclosed.
var secretKey = regexp.MustCompile(`(?i)password|passwd|secret|token|credential`)

// secretParam matches parameters of the guest's kernel whose values must not be
// disclosed.
var secretParam = regexp.MustCompile(`(?i)(\S*(?:password|passwd|secret|token|credential|key)\S*=)\S+`)

// hidden replaces an undisclosed value.
const hidden = "(hidden)"

// hideSecrets replaces values that may be secrets.
func hideSecrets(values []value) {
	for i, v := range values {
		text, isText := v.Value.(string)
		switch {
		case secretKey.MatchString(v.Key):
			values[i].Value = hidden
		case isText:
			values[i].Value = secretParam.ReplaceAllString(text, "${1}"+hidden)
		}
	}
}

const (
	// logSince is how far back the log is read. maxLog bounds how much of it is
	// kept, in bytes: the end.
	logSince = "-2h"
	maxLog   = 2 << 20
)

// engineUnits are patterns of the units in whose log shims' lines are: MicroK8s has
// snap.microk8s.daemon-containerd.
var engineUnits = []string{"*containerd*", "docker*", "crio*", "isulad*"}

// collectLog adds the lines of the journal that are about pods here.
func (h host) collectLog(ctx context.Context, pods []monitor.Pod, a *archive) {
	journalctl, err := h.lookPath("journalctl")
	if err != nil {
		a.add("log.txt", nil, fmt.Errorf("%w: the engine's log is to be added by hand", err))
		return
	}
	args := []string{"--since", logSince, "--no-pager", "--output", "short-iso"}
	for _, unit := range engineUnits {
		args = append(args, "--unit", unit)
	}
	text, err := h.output(ctx, journalctl, args...)
	var lines []byte
	for line := range strings.Lines(text) {
		if isAbout(line, pods) {
			lines = append(lines, secretParam.ReplaceAllString(line, "${1}"+hidden)...)
		}
	}
	a.add("log.txt", lines[max(0, len(lines)-maxLog):], err)
}

// isAbout reports whether a line was logged by the shim of one of these pods.
// Lines that engines log themselves may contain environments and annotations.
func isAbout(line string, pods []monitor.Pod) bool {
	return slices.ContainsFunc(pods, func(p monitor.Pod) bool { return strings.Contains(line, " sandbox="+p.ID) })
}
