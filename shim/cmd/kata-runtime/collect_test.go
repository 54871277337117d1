package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/virtcontainers/timeline"
)

// untar reads an archive; it removes the archive's one directory from the names.
func untar(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("archive: %v, %v", info, err)
	}
	compressed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for r := tar.NewReader(compressed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(data)
	}
}

// The archive has what a bug report needs, and no secret.
func TestCollect(t *testing.T) {
	h := newFakeHost(t)
	h.records = withRecords(t, true).records
	h.timeline = func(_ context.Context, id string) (*timeline.Timeline, error) {
		if id != "p1" {
			return nil, errors.New("it does not answer")
		}
		return &timeline.Timeline{Version: timeline.Version, Sandbox: id}, nil
	}
	conf := filepath.Join(t.TempDir(), "configuration.toml")
	text := "[hypervisor.qemu]\nkernel_params = \"quiet my.password=geheim\"\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h.lookPath = func(name string) (string, error) { return "/usr/bin/" + name, nil }
	run := h.output
	h.output = func(ctx context.Context, path string, args ...string) (string, error) {
		if filepath.Base(path) == "journalctl" {
			return "level=info msg=booted sandbox=p1\nRunPodSandbox sandbox p1 annotations: geheim\nmsg=x sandbox=p1 token=geheim\nmsg=y sandbox=other\n", nil
		}
		return run(ctx, path, args...)
	}
	name := filepath.Join(t.TempDir(), "report.tar.gz")
	out, errs, code := call(t, h.host, "collect", "--config", conf, "--output", name)
	steps := "collect: this host\ncollect: 1 of 2 pods\ncollect: 2 of 2 pods\ncollect: the engines' log\n"
	if code != 0 || errs != steps || !strings.HasPrefix(out, name+": ") {
		t.Fatalf("%d, %q, %q", code, errs, out)
	}
	files := untar(t, name)
	for _, f := range []string{"check.json", "env.json", "pods.json"} {
		if !json.Valid([]byte(files[f])) {
			t.Errorf("%s: %q", f, files[f])
		}
	}
	pods, metrics, lines := 0, 0, 0
	for f, content := range files {
		if strings.Contains(content, "geheim") {
			t.Errorf("%s has a secret:\n%s", f, content)
		}
		switch {
		case strings.HasSuffix(f, "/state.json"):
			pods++
		case strings.HasSuffix(f, "/metrics.txt"), strings.HasSuffix(f, "/timeline.json"):
			metrics++
		case strings.HasSuffix(f, "/metrics.txt.error"), strings.HasSuffix(f, "/timeline.json.error"):
			lines++
		}
	}
	if pods != 2 || metrics != 2 || lines != 2 {
		t.Errorf("%d records, %d answers, %d errors; want 2 of each", pods, metrics, lines)
	}
	if !strings.Contains(files["env.json"], "my.password=(hidden)") || !strings.Contains(files["host/proc/meminfo"], "MemTotal") {
		t.Errorf("env: %s\nmeminfo: %s", files["env.json"], files["host/proc/meminfo"])
	}
	if want := "level=info msg=booted sandbox=p1\nmsg=x sandbox=p1 token=(hidden)\n"; files["log.txt"] != want {
		t.Errorf("log: %q, want %q", files["log.txt"], want)
	}
	if _, errs, code := call(t, h.host, "collect", "--output", name); code != 1 || !strings.Contains(errs, "choose another file with --output") {
		t.Errorf("a file that is there: %d, %q", code, errs)
	}
}

// An archive that was interrupted is removed.
func TestCollectInterrupted(t *testing.T) {
	h := newFakeHost(t)
	h.records = withRecords(t, false).records
	h.timeline = func(context.Context, string) (*timeline.Timeline, error) { return nil, errors.New("none") }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	name := filepath.Join(t.TempDir(), "report.tar.gz")
	var errs strings.Builder
	code := run(ctx, []string{"kata-runtime", "collect", "--output", name}, io.Discard, &errs, h.host)
	if _, err := os.Stat(name); code != 1 || !os.IsNotExist(err) || !strings.Contains(errs.String(), "write "+name+": context canceled") {
		t.Errorf("%d, %q; the file: %v", code, errs.String(), err)
	}
}

func TestPodsCommand(t *testing.T) {
	h := withRecords(t, true)
	out, errs, code := call(t, h, "pods")
	lines := strings.Split(out, "\n")
	if code != 0 || errs != "" || len(lines) != 4 || !strings.HasPrefix(lines[1], "p1 ") || !strings.HasPrefix(lines[2], "p2 ") || strings.Count(lines[2], " - ") != 4 {
		t.Errorf("%d, %q, %s", code, errs, out)
	}
	if same, _, code := call(t, h, "list"); code != 0 || len(strings.Split(same, "\n")) != 4 {
		t.Errorf("list: %d, %s", code, same)
	}
	// With a flag of the OCI runtime's it is that one's.
	if other, errs, code := call(t, h, "list", "--format", "yaml"); code != 1 || other != "" || !strings.Contains(errs, "want table or json") {
		t.Errorf("list --format: %d, %q %q", code, other, errs)
	}
	out, _, code = call(t, h, "pods", "--json")
	var list []podLine
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list) != 2 {
		t.Fatalf("%v, %d, %s", err, code, out)
	}
	if list[0].ID != "p1" || list[0].Error != "" || list[0].ShimPID != os.Getpid() || list[0].MemoryBytes == 0 || list[1].Error == "" || list[0].EngineNamespace != "test" || list[0].Containers == nil {
		t.Errorf("%+v", list)
	}
}
