package disk_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
)

// plain is a machine that supports no asynchronous I/O but threads.
type plain struct{ *fake.VM }

func (p plain) Attach(ctx context.Context, d hypervisor.Device) error {
	if aio := d.(hypervisor.Disk).AIO; aio != hypervisor.AIOThreads {
		return fmt.Errorf("no %s here: %w", aio, errInjected)
	}
	return p.VM.Attach(ctx, d)
}

// logged returns a context whose log is kept.
func logged(t *testing.T) (context.Context, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&out)
	return log.WithLogger(t.Context(), logrus.NewEntry(logger)), &out
}

func TestAIOFallsBackToThreads(t *testing.T) {
	for _, test := range []struct {
		name   string
		opts   disk.Options
		want   hypervisor.DiskAIO
		warn   string
		refuse bool
	}{
		{"io_uring", disk.Options{AIO: hypervisor.AIOUring}, hypervisor.AIOUring, "", false},
		{"refused io_uring", disk.Options{AIO: hypervisor.AIOUring}, hypervisor.AIOThreads, "no io_uring here", true},
		{"refused native", disk.Options{AIO: hypervisor.AIONative, Cache: hypervisor.DiskCache{Direct: true}}, hypervisor.AIOThreads, "no native here", true},
		{"native with the page cache", disk.Options{AIO: hypervisor.AIONative}, hypervisor.AIOThreads, "block_device_cache_direct", false},
		{"none", disk.Options{}, hypervisor.AIOThreads, "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, out := logged(t)
			_, vm := machine(t)
			var m disk.Machine = vm
			if test.refuse {
				m = plain{vm}
			}
			test.opts.Bus = hypervisor.VirtioSCSI
			p := disk.NewPool(m, test.opts)
			var all sync.WaitGroup
			for _, name := range []string{"a", "b", "c"} {
				src := disk.Source{Path: file(t, name)}
				all.Go(func() {
					if _, err := p.Use(ctx, src); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for _, d := range vm.Devices() {
				if got := d.(hypervisor.Disk).AIO; got != test.want {
					t.Errorf("%s: AIO is %q, want %q", d.DeviceID(), got, test.want)
				}
			}
			warned := strings.Count(out.String(), "level=warning")
			if test.warn == "" && warned != 0 || test.warn != "" && (warned != 1 || !strings.Contains(out.String(), test.warn)) {
				t.Errorf("log:\n%s\nwant one warning with %q", out, test.warn)
			}
		})
	}
}

// Linux AIO is for the disks that bypass the page cache, also after another disk has
// been attached.
func TestNativeForDirectDisks(t *testing.T) {
	ctx, out := logged(t)
	_, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioSCSI, AIO: hypervisor.AIONative})
	for _, direct := range []bool{false, true, false, true} {
		if _, err := p.Use(ctx, disk.Source{Path: file(t, "disk"), Direct: direct}); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range vm.Devices() {
		d := d.(hypervisor.Disk)
		if want := (d.ID == "disk-2" || d.ID == "disk-4"); d.Cache.Direct != want || (d.AIO == hypervisor.AIONative) != want {
			t.Errorf("%s: direct %v, AIO %q", d.ID, d.Cache.Direct, d.AIO)
		}
	}
	if warned := strings.Count(out.String(), "level=warning"); warned != 1 {
		t.Errorf("%d warnings, want one:\n%s", warned, out)
	}
}
