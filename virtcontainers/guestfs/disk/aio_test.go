package disk_test

import (
	"bytes"
	"context"
	"errors"
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

// losing counts the disks that it attaches, and loses.
type losing struct {
	lost
	tries int
}

func (l *losing) Attach(ctx context.Context, d hypervisor.Device) error {
	l.tries++
	return l.lost.Attach(ctx, d)
}

// A disk that is attached, and not found, is no reason to use threads.
func TestNoFallBackAfterAttach(t *testing.T) {
	ctx, out := logged(t)
	_, vm := machine(t)
	m := &losing{lost: lost{vm}}
	p := disk.NewPool(m, disk.Options{Bus: hypervisor.VirtioSCSI, AIO: hypervisor.AIOUring})
	if _, err := p.Use(ctx, disk.Source{Path: file(t, "disk")}); !errors.Is(err, errInjected) {
		t.Errorf("Use: %v", err)
	}
	if m.tries != 1 || p.Len() != 0 || out.Len() != 0 {
		t.Errorf("%d attempts, %d disks, log:\n%s", m.tries, p.Len(), out)
	}
}

// mute is a machine that attaches nothing, whatever the asynchronous I/O.
type mute struct{ *fake.VM }

func (mute) Attach(_ context.Context, d hypervisor.Device) error {
	return fmt.Errorf("no disk with %s: %w", d.(hypervisor.Disk).AIO, errInjected)
}

// If threads do not help, both errors are returned.
func TestFallBackFails(t *testing.T) {
	_, vm := machine(t)
	p := disk.NewPool(mute{vm}, disk.Options{Bus: hypervisor.VirtioSCSI, AIO: hypervisor.AIOUring})
	_, err := p.Use(t.Context(), disk.Source{Path: file(t, "disk")})
	for _, aio := range []hypervisor.DiskAIO{hypervisor.AIOUring, hypervisor.AIOThreads} {
		if err == nil || !strings.Contains(err.Error(), "no disk with "+string(aio)) {
			t.Errorf("Use: %v, want the error with %s", err, aio)
		}
	}
}
