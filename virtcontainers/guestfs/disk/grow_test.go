package disk_test

import (
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
)

func TestGrow(t *testing.T) {
	for _, test := range []struct {
		name                string
		length              int64
		block               uint32
		want, grown         uint64
		is                  func(error) bool
		errText             string
		readOnly, elsewhere bool
	}{
		{name: "larger", length: 4096, want: 1 << 20, grown: 1 << 20},
		{name: "as large", length: 4096, want: 4096, grown: 4096},
		{name: "what it has", length: 4096, grown: 4096},
		{name: "whole sectors", length: 4096, want: 4097, grown: 4608},
		{name: "whole blocks", length: 4096, block: 4096, want: 4097, grown: 8192},
		{name: "smaller", length: 4096, want: 4095, is: errdefs.IsInvalidArgument, errText: "the file has 4096 bytes, want 4095: a disk does not shrink"},
		{name: "beyond all files", length: 4096, want: 1<<63 - 1, is: errdefs.IsInvalidArgument, errText: "more than a file can have"},
		{name: "read-only", length: 4096, want: 8192, readOnly: true, is: errdefs.IsFailedPrecondition, errText: "it is read-only"},
		{name: "another file", length: 4096, want: 8192, elsewhere: true, is: errdefs.IsFailedPrecondition, errText: "leads to another file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, vm := machine(t)
			p := disk.NewPool(vm, disk.Options{Bus: "virtio-blk", LogicalBlockSize: test.block})
			path := file(t, "a")
			if err := os.Truncate(path, test.length); err != nil {
				t.Fatal(err)
			}
			d := use(t, p, disk.Source{Path: path, ReadOnly: test.readOnly})
			if test.elsewhere {
				if err := os.Rename(file(t, "b"), path); err != nil {
					t.Fatal(err)
				}
			}
			got, err := p.Grow(t.Context(), d, test.want)
			if test.is != nil {
				if !test.is(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), test.errText) {
					t.Errorf("error %v, want one with %q", err, test.errText)
				}
			} else if err != nil {
				t.Error(err)
			}
			if asked := vm.Grown("disk-1"); got != test.grown || asked != test.grown {
				t.Errorf("%d bytes, the machine was asked for %d, want %d", got, asked, test.grown)
			}
		})
	}
}

func TestGrowWhatIsNotThere(t *testing.T) {
	m, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: "virtio-blk"})
	d := use(t, p, disk.Source{Path: file(t, "a")})
	m.Fail(fake.StepGrow, errInjected)
	if _, err := p.Grow(t.Context(), d, 1<<20); err == nil || !strings.Contains(err.Error(), "injected") {
		t.Errorf("a machine that fails: %v", err)
	}
	release(t, p, d)
	for _, d := range []*disk.Disk{d, nil} {
		if _, err := p.Grow(t.Context(), d, 1<<20); !errdefs.IsNotFound(err) {
			t.Errorf("a disk that was released: %v", err)
		}
	}
	if p.Len() != 0 {
		t.Errorf("%d disks are remembered", p.Len())
	}
}
