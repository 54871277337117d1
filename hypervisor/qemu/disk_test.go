package qemu

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

func TestPlanDisk(t *testing.T) {
	d := testDisk(t, "x", hypervisor.VirtioBlk)
	for _, tt := range []struct {
		name               string
		change             func(*hypervisor.Disk)
		bus                bus
		node, file, device map[string]any // beyond what every disk has
	}{
		{"virtio-blk", func(*hypervisor.Disk) {}, pciBus, nil, nil,
			map[string]any{"driver": "virtio-blk-pci", "bus": podBus, "disable-legacy": "on"}},
		{"virtio-scsi", func(d *hypervisor.Disk) { d.Bus = hypervisor.VirtioSCSI }, scsiBus, nil, nil,
			map[string]any{"driver": "scsi-hd", "bus": "pod.scsi.0", "lun": 0}},
		{"everything", func(d *hypervisor.Disk) { *d = odd(readOnly(t, *d)) }, pciBus,
			map[string]any{"read-only": true, "cache": map[string]any{"direct": true, "no-flush": true}},
			map[string]any{"aio": "native"},
			map[string]any{"driver": "virtio-blk-pci", "bus": podBus, "disable-legacy": "on",
				"logical_block_size": uint32(4096), "physical_block_size": uint32(4096)}},
		{"large physical blocks", func(d *hypervisor.Disk) { d.PhysicalBlockSize = 64 << 10 }, pciBus, nil, nil,
			map[string]any{"driver": "virtio-blk-pci", "bus": podBus, "disable-legacy": "on", "physical_block_size": uint32(64 << 10)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := d
			tt.change(&d)
			p, err := planOf(d, 7)
			if err != nil {
				t.Fatal(err)
			}
			file := with(map[string]any{"driver": "file", "filename": "/dev/fdset/7", "discard": "unmap"}, tt.file)
			node := with(map[string]any{
				"driver": "raw", "node-name": "disk-x", "read-only": false, "discard": "unmap",
				"cache": map[string]any{"direct": false, "no-flush": false}, "file": file,
			}, tt.node)
			device := with(map[string]any{"id": "x", "drive": "disk-x", "serial": "s-x", "werror": "report", "rerror": "report"}, tt.device)
			want := []any{tt.bus, 7, node, device}
			if diff := cmp.Diff(want, []any{p.bus, p.files[0].set, p.backend.add.args, p.device}); diff != "" {
				t.Error(diff)
			}
			if _, flags, err := statFile(d.File); err != nil || (flags&unix.O_DIRECT != 0) != d.Cache.Direct {
				t.Errorf("file has flags %#x, %v; direct is %v", flags, err, d.Cache.Direct)
			}
		})
	}
}

func with(all, more map[string]any) map[string]any {
	for k, v := range more {
		all[k] = v
	}
	return all
}

const (
	addFD      = `add-fd {"fdset-id":1} +file`
	removeFD1  = `remove-fd {"fdset-id":1}`
	addNode    = `blockdev-add {"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"raw","file":{"discard":"unmap","driver":"file","filename":"/dev/fdset/1"},"node-name":"disk-x","read-only":false}`
	delNode    = `blockdev-del {"node-name":"disk-x"}`
	addBlk     = `device_add {"addr":"0x1","bus":"pod","disable-legacy":"on","drive":"disk-x","driver":"virtio-blk-pci","id":"x","rerror":"report","serial":"s-x","werror":"report"}`
	addSCSI    = `device_add {"addr":"0x1","bus":"pod","disable-legacy":"on","driver":"virtio-scsi-pci","id":"pod.scsi"}`
	addLUN     = `device_add {"bus":"pod.scsi.0","drive":"disk-x","driver":"scsi-hd","id":"x","lun":0,"rerror":"report","scsi-id":0,"serial":"s-x","werror":"report"}`
	outOfLuck  = "out of luck"
	nodeNotYet = "Node 'disk-x' is busy: node is in use"
)

// When QEMU refuses a step, those before it are undone, and what QEMU does only
// while the machine runs is repeated then.
func TestAttachDiskCommands(t *testing.T) {
	for _, tt := range []struct {
		name   string
		bus    hypervisor.DiskBus
		refuse string // the beginning of a command
		want   []string
	}{
		{"virtio-blk", hypervisor.VirtioBlk, "", []string{addFD, addNode, addBlk, cont}},
		{"virtio-scsi", hypervisor.VirtioSCSI, "", []string{addSCSI, addFD, addNode, addLUN, cont}},
		{"no descriptor", hypervisor.VirtioBlk, "add-fd", []string{addFD, cont}},
		{"no node", hypervisor.VirtioBlk, "blockdev-add", []string{addFD, addNode, removeFD1, cont, removeFD1}},
		{"no device", hypervisor.VirtioBlk, "device_add", []string{addFD, addNode, addBlk, delNode, removeFD1, cont, removeFD1}},
		{"no controller", hypervisor.VirtioSCSI, "device_add", []string{addSCSI, cont}},
		{"no LUN", hypervisor.VirtioSCSI, addLUN, []string{addSCSI, addFD, addNode, addLUN, delNode, removeFD1, cont, removeFD1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vm := scriptAnswers(t, func(_ *qmptest.Server, r qmptest.Request) any {
				if tt.refuse != "" && strings.HasPrefix(r.Execute+" "+string(r.Arguments), tt.refuse) {
					return &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: outOfLuck}
				}
				return yes
			})
			err := vm.Attach(testContext(t), testDisk(t, "x", tt.bus))
			if (err != nil) != (tt.refuse != "") || err != nil && !strings.Contains(err.Error(), outOfLuck) {
				t.Errorf("Attach: %v", err)
			}
			if err := vm.Resume(testContext(t)); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.want, vm.sent()); diff != "" {
				t.Error(diff)
			}
			if _, err := vm.Locate("x"); (err != nil) != (tt.refuse != "") {
				t.Errorf("the ID afterwards: %v", err)
			}
		})
	}
}

// Removing a node that is still in use after its device is gone is tried again.
func TestDetachDisk(t *testing.T) {
	busy := 2
	vm := scriptAnswers(t, func(s *qmptest.Server, r qmptest.Request) any {
		switch {
		case r.Execute == "device_del":
			return letsGo(s)
		case r.Execute == blockdevDel && busy > 0:
			busy--
			return &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: nodeNotYet}
		}
		return yes
	})
	if err := vm.Attach(testContext(t), testDisk(t, "x", hypervisor.VirtioBlk)); err != nil {
		t.Fatal(err)
	}
	resume(t, vm)
	if err := vm.Detach(testContext(t), "x"); err != nil {
		t.Error(err)
	}
	want := []string{addFD, addNode, addBlk, cont, deviceDel, delNode, delNode, delNode, removeFD1}
	if diff := cmp.Diff(want, vm.sent()); diff != "" {
		t.Error(diff)
	}
}

// A disk whose attaching ended in an unknown state is removed with everything
// that it may have left.
func TestDetachDiskWithoutAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(testContext(t))
	gaveUp := make(chan struct{})
	vm := scriptAnswers(t, func(_ *qmptest.Server, r qmptest.Request) any {
		switch r.Execute {
		case "blockdev-add":
			cancel()
			<-gaveUp
		case "device_del":
			return notFound
		case blockdevDel:
			return &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: "Failed to find node with node-name='disk-x'"}
		}
		return yes
	})
	if err := vm.Attach(ctx, testDisk(t, "x", hypervisor.VirtioBlk)); !errors.Is(err, context.Canceled) {
		t.Errorf("Attach: %v", err)
	}
	close(gaveUp)
	resume(t, vm)
	if err := vm.Detach(testContext(t), "x"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{addFD, addNode, cont, deviceDel, delNode, removeFD1}, vm.sent()); diff != "" {
		t.Error(diff)
	}
}

// A bad disk is refused before QEMU gets any command.
func TestDiskChecks(t *testing.T) {
	vm := script(t, refuseNothing)
	good := testDisk(t, "x", hypervisor.VirtioBlk)
	closed := testDisk(t, "closed", hypervisor.VirtioBlk)
	_ = closed.File.Close()
	for name, tt := range map[string]struct {
		change func(*hypervisor.Disk)
		want   string
	}{
		"long ID":         {func(d *hypervisor.Disk) { d.ID = strings.Repeat("x", 27) }, "longer than 26 bytes"},
		"no file":         {func(d *hypervisor.Disk) { d.File = nil }, "no file"},
		"closed file":     {func(d *hypervisor.Disk) { d.File = closed.File }, "closed"},
		"no bus":          {func(d *hypervisor.Disk) { d.Bus = "" }, `bus ""`},
		"long serial":     {func(d *hypervisor.Disk) { d.Serial = strings.Repeat("s", 21) }, "at most 20"},
		"strange serial":  {func(d *hypervisor.Disk) { d.Serial = "a b" }, "at most 20"},
		"strange AIO":     {func(d *hypervisor.Disk) { d.AIO = "warp" }, "unknown"},
		"native, cached":  {func(d *hypervisor.Disk) { d.AIO = hypervisor.AIONative }, "without direct cache"},
		"small block":     {func(d *hypervisor.Disk) { d.LogicalBlockSize = 256 }, "block size 256"},
		"odd block":       {func(d *hypervisor.Disk) { d.PhysicalBlockSize = 513 }, "block size 513"},
		"blocks reversed": {func(d *hypervisor.Disk) { d.LogicalBlockSize, d.PhysicalBlockSize = 4096, 512 }, "below the logical"},
		"not a disk":      {func(d *hypervisor.Disk) { d.File = openDisk(t, os.DevNull, os.O_RDWR) }, "neither a regular file"},
		"file read-only":  {func(d *hypervisor.Disk) { d.File = readOnly(t, *d).File }, "not open for reading and writing"},
		"disk read-only":  {func(d *hypervisor.Disk) { d.ReadOnly = true }, "not open for reading only"},
	} {
		d := good
		tt.change(&d)
		if err := vm.Attach(testContext(t), d); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := vm.Locate(d.ID); !errdefs.IsNotFound(err) {
			t.Errorf("%s: the ID is in use: %v", name, err)
		}
	}
	if got := vm.sent(); len(got) != 0 {
		t.Errorf("QEMU was asked: %q", got)
	}
}

// Disks that are attached concurrently share one controller; each has its own
// target.
func TestControllerComesOnce(t *testing.T) {
	vm := script(t, refuseNothing)
	var disks []hypervisor.Disk
	for _, id := range []string{"a", "b", "c", "d"} {
		disks = append(disks, testDisk(t, id, hypervisor.VirtioSCSI))
	}
	each(disks, func(d hypervisor.Disk) {
		if err := vm.Attach(testContext(t), d); err != nil {
			t.Error(err)
		}
	})
	if n := strings.Count(strings.Join(vm.sent(), "\n"), "virtio-scsi-pci"); n != 1 {
		t.Errorf("%d controllers", n)
	}
	targets := make(map[uint8]bool)
	for _, d := range disks {
		where, err := vm.Locate(d.ID)
		if err != nil || where.LUN == nil || where.PCIPath != "01/01" || targets[where.LUN.Target] {
			t.Errorf("%s is at %+v, %v", d.ID, where, err)
			continue
		}
		targets[where.LUN.Target] = true
		if _, err := vm.PCIPath(d.ID); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("PCIPath: %v", err)
		}
	}
	for _, id := range []string{scsiController, scsiBusName} {
		if err := vm.Detach(testContext(t), id); !errdefs.IsNotFound(err) {
			t.Errorf("Detach of %s: %v", id, err)
		}
	}
}

// When attaching the controller fails for one disk, it is tried again for
// another.
func TestControllerIsTriedAgain(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() {
		close(asked)
		<-goOn
	})
	refusals := 1
	vm := scriptAnswers(t, func(_ *qmptest.Server, r qmptest.Request) any {
		if r.Execute == "device_add" && refusals > 0 {
			refusals--
			first()
			return &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: outOfLuck}
		}
		return yes
	})
	errs := make(chan error, 1)
	go func() { errs <- vm.Attach(testContext(t), testDisk(t, "a", hypervisor.VirtioSCSI)) }()
	<-asked
	second := make(chan error, 1)
	go func() { second <- vm.Attach(testContext(t), testDisk(t, "b", hypervisor.VirtioSCSI)) }()
	close(goOn)
	if err := <-errs; err == nil || !strings.Contains(err.Error(), outOfLuck) {
		t.Errorf("the first: %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("the second: %v", err)
	}
}

// All targets can be used, and no more.
func TestTargetsAreUsedUp(t *testing.T) {
	vm := script(t, refuseNothing)
	d := testDisk(t, "x", hypervisor.VirtioSCSI)
	for i := firstTarget; i <= lastTarget; i++ {
		d.ID = "x" + strconv.Itoa(i)
		if err := vm.Attach(testContext(t), d); err != nil {
			t.Fatal(err)
		}
	}
	where, err := vm.Locate(d.ID)
	if want := (hypervisor.Location{PCIPath: "01/01", LUN: &hypervisor.LUN{Target: 255}}); !cmp.Equal(want, where) || err != nil {
		t.Errorf("the last is at %+v, %v", where, err)
	}
	d.ID = "more"
	if err := vm.Attach(testContext(t), d); !errdefs.IsResourceExhausted(err) {
		t.Errorf("one more: %v", err)
	}
}

// The target of a removed disk is the last to be reused.
func TestTargetIsTakenAgainLate(t *testing.T) {
	vm := scriptAnswers(t, func(s *qmptest.Server, r qmptest.Request) any {
		if r.Execute == "device_del" {
			return letsGo(s)
		}
		return yes
	})
	resume(t, vm)
	d := testDisk(t, "x", hypervisor.VirtioSCSI)
	for i := firstTarget; i <= lastTarget+1; i++ {
		if err := vm.Attach(testContext(t), d); err != nil {
			t.Fatal(err)
		}
		where, err := vm.Locate(d.ID)
		if want := uint8(i % (lastTarget + 1)); err != nil || where.LUN.Target != want {
			t.Fatalf("disk %d is at %v, %v, want target %d", i, where.LUN, err, want)
		}
		if err := vm.Detach(testContext(t), d.ID); err != nil {
			t.Fatal(err)
		}
	}
}
