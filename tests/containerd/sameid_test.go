package containerd

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

// Containers of two namespaces may have the same id: ending one, or the delete
// that containerd calls when its shim was killed, does not affect the other.
func TestSameIDInTwoNamespaces(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		id := d.NewID("twin")
		other := twin(namespaces.WithNamespace(ctx, "katabox-twins"), t, d, id)
		recorder := d.Record(ctx)
		defer recorder.Close()
		for _, kill := range []bool{true, false} {
			c, err := d.Create(ctx, harness.ContainerConfig{ID: id, Args: []string{"sleep", "100000"}})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(ctx); err != nil {
				t.Fatal(err)
			}
			if kill { // containerd then calls delete
				killShimOf(t, d.BundleDir(id))
				if _, err := recorder.Await(ctx, id, "delete"); err != nil {
					t.Fatal(err)
				}
			}
			removed(t, "container", c.Remove)
			if out := other.exec(t, "echo alive"); out != "alive\n" {
				t.Errorf("the container of that id in the other namespace says %q", out)
			}
		}
	})
}

// twinned is a container in a namespace other than the harness's.
type twinned struct {
	ctx  context.Context //nolint:containedctx // it carries the namespace
	task client.Task
	box  client.Container
}

func twin(ctx context.Context, t *testing.T, d *harness.Daemon, id string) *twinned {
	t.Helper()
	if err := d.ImportImages(ctx); err != nil {
		t.Fatal(err)
	}
	img, err := d.Client.GetImage(ctx, image.Busybox)
	if err != nil {
		t.Fatal(err)
	}
	box, err := d.Client.NewContainer(ctx, id, client.WithImage(img), client.WithSnapshotter(d.Snapshotter), client.WithNewSnapshot(id, img),
		client.WithRuntime(d.Runtime().Type, nil), client.WithNewSpec(oci.WithImageConfig(img), oci.WithProcessArgs("sleep", "100000")))
	if err != nil {
		t.Fatal(err)
	}
	c := &twinned{ctx: ctx, box: box}
	t.Cleanup(func() {
		removed(t, "twin", func(short context.Context) error {
			ctx := namespaces.WithNamespace(short, "katabox-twins")
			if c.task != nil {
				if _, err := c.task.Delete(ctx, client.WithProcessKill); err != nil {
					t.Error(err)
				}
			}
			return box.Delete(ctx, client.WithSnapshotCleanup)
		})
	})
	if c.task, err = box.NewTask(ctx, cio.NullIO); err != nil {
		t.Fatal(err)
	}
	if err := c.task.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// exec runs a shell script in the container and returns what it prints.
func (c *twinned) exec(t *testing.T, text string) string {
	t.Helper()
	spec, err := c.box.Spec(c.ctx)
	if err != nil {
		t.Fatal(err)
	}
	process := *spec.Process
	process.Args = script(text)
	var out strings.Builder
	p, err := c.task.Exec(c.ctx, "exec", &process, cio.NewCreator(cio.WithStreams(nil, &out, nil)))
	if err != nil {
		return err.Error()
	}
	exit, err := p.Wait(c.ctx)
	if err == nil {
		err = p.Start(c.ctx)
	}
	if err == nil {
		<-exit
		_, err = p.Delete(c.ctx)
	}
	if err != nil {
		return err.Error()
	}
	return out.String()
}

// killShimOf kills the shim that has a bundle.
func killShimOf(t *testing.T, bundle string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(bundle, "shim.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
