package k8s

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/cri/images"
	"github.com/katabox/katabox/tests/engines/host"
	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/k8s/node"
)

// prepareTimeout bounds the start of the cluster and the installation.
const prepareTimeout = 5 * time.Minute

// bed is what all tests share: one cluster.
var bed struct {
	layout  harness.Layout
	node    *node.Node
	records *records
}

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: Kubernetes needs root")
		os.Exit(0)
	}
	if host.Name() == "" {
		if err := makeImages(); err != nil {
			fmt.Fprintln(os.Stderr, "make the images:", err)
			os.Exit(1)
		}
	}
	os.Exit(host.Run(func() int { return runSuite(m) }, func() error { return errors.Join(removeCgroups(), removeLoops()) }))
}

// cgroup returns the cgroup of all pods, which is the machine's.
func cgroup() string { return "/" + host.Name() }

func removeCgroups() error { return host.RemoveCgroups(cgroup()) }

// makeImages makes the images before the private host is made, which has no
// network for downloads. They are kept.
func makeImages() (err error) {
	if bed.layout, err = harness.FindLayout(); err != nil {
		return err
	}
	if _, err := makeStore(context.Background()); err != nil {
		return err
	}
	return makeInstaller(context.Background(), bed.layout)
}

// makeStore makes the images that the registry serves: with those of Kubernetes'
// own suite, if it is asked for.
func makeStore(ctx context.Context) (*images.Store, error) {
	store, err := images.Build(ctx, imageCache(bed.layout))
	if err != nil || os.Getenv(EnvConformance) == "" {
		return store, err
	}
	return store, store.AddKubernetes(ctx, imageCache(bed.layout), toolsDir(bed.layout))
}

// runSuite runs the tests in a cluster, and removes it.
func runSuite(m *testing.M) int {
	began := time.Now()
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the suite:", err)
		return 1
	}
	fmt.Printf("the cluster is ready after %.0f s\n", time.Since(began).Seconds())
	code := m.Run()
	if err := finish(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: after the tests:", err)
		return 1
	}
	return code
}

// prepare starts a cluster and installs Katabox on its node.
func prepare() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), prepareTimeout)
	defer cancel()
	if bed.layout, err = harness.FindLayout(); err != nil {
		return err
	}
	if err := missing(bed.layout); err != nil {
		return err
	}
	store, err := makeStore(ctx)
	if err != nil {
		return err
	}
	registry, err := images.Serve(store)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(bed.layout.Logs(), 0o755); err != nil {
		return err
	}
	bed.node, err = node.Start(ctx, node.Options{
		Layout: bed.layout, Tools: toolsDir(bed.layout), Runc: runcPath(bed.layout), Registry: registry.URL, Cgroup: cgroup(),
	})
	if err != nil {
		return err
	}
	if bed.records, err = watchRecords(); err != nil {
		return err
	}
	return errors.Join(configure(), install(ctx, "1"), applyAll(ctx))
}

// configure writes the node's configuration of Katabox: small machines, and
// patience with a busy one.
func configure() error {
	if err := os.MkdirAll(configDir, 0o755); err != nil {
		return err
	}
	return harness.KataConfig{}.Write(bed.layout, filepath.Join(configDir, "configuration.toml"))
}

// configDir has the node's own configuration of Katabox, which takes the place of
// the installed one.
const configDir = "/etc/kata-containers"

// configure adds a file to the node's configuration until the case ends.
func (s *stage) configure(name, text string) {
	s.Helper()
	path := filepath.Join(configDir, "config.d", name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			s.Error(err)
		}
	})
}

// asInstalled leaves the node only the installed configuration, and so the
// installed guest, until the case ends.
func (s *stage) asInstalled() {
	s.Helper()
	const aside = configDir + ".aside"
	if err := os.Rename(configDir, aside); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := os.Rename(aside, configDir); err != nil {
			s.Error(err)
		}
	})
}

// ofInstalled checks that a pod's machine runs the installed guest.
func (s *stage) ofInstalled(pod string) {
	s.Helper()
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", s.machine(pod)))
	if err != nil {
		s.Fatal(err)
	}
	if !strings.Contains(string(mounts), "share/kata-containers/vmlinux /boot/kernel ") {
		s.Errorf("the machine of %s does not run the installed kernel:\n%s", pod, mounts)
	}
}

// applyAll creates what an administrator applies: the RuntimeClasses, and the
// node's label.
func applyAll(ctx context.Context) error {
	const runc = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: runc}\nhandler: runc\n"
	for _, r := range []node.Result{
		bed.node.Kubectl(ctx, "", "apply", "-f", filepath.Join(bed.layout.Root, "deploy/kubernetes/runtimeclass.yaml")),
		bed.node.Kubectl(ctx, runc, "apply", "-f", "-"),
		bed.node.Kubectl(ctx, "", "label", "node", node.Name, "katacontainers.io/kata-runtime=true"),
	} {
		if r.Code != 0 {
			return fmt.Errorf("configure the cluster: %s", r.Errors)
		}
	}
	return nil
}

// finish ends the cluster: no pod's process, file, mount or cgroup may be left.
func finish() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return errors.Join(nothingLeft(ctx), bed.node.Stop(ctx))
}
