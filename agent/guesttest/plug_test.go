package guesttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// wish precedes, on the console, the name of what the tests in the guest want
// hot-plugged.
const wish = "guesttest-wants"

// What is hot-plugged.
const (
	startMiB = 768
	dimmMiB  = 128
	vmemMiB  = 256
)

// plugs are the QMP commands for each wish.
var plugs = map[string][]string{
	"disk": {
		`{"execute":"blockdev-add","arguments":{"node-name":"late","driver":"raw","file":{"driver":"file","filename":"DIR/late.img"}}}`,
		`{"execute":"device_add","arguments":{"driver":"virtio-blk-pci","id":"late","bus":"pod","addr":"0x06","drive":"late"}}`,
	},
	"lun": {
		`{"execute":"blockdev-add","arguments":{"node-name":"lun","driver":"raw","read-only":true,"file":{"driver":"file","filename":"DIR/lun.img"}}}`,
		`{"execute":"device_add","arguments":{"driver":"scsi-hd","id":"lun","bus":"scsi.0","scsi-id":200,"lun":0,"drive":"lun"}}`,
	},
	"dimm": {
		fmt.Sprintf(`{"execute":"object-add","arguments":{"qom-type":"memory-backend-ram","id":"dimm","size":%d}}`, dimmMiB<<20),
		`{"execute":"device_add","arguments":{"driver":"pc-dimm","id":"dimm0","memdev":"dimm"}}`,
	},
	"virtio-mem": {
		fmt.Sprintf(`{"execute":"object-add","arguments":{"qom-type":"memory-backend-ram","id":"vmem","size":%d}}`, 2*vmemMiB<<20),
		fmt.Sprintf(`{"execute":"device_add","arguments":{"driver":"virtio-mem-pci","id":"vmem0","memdev":"vmem","requested-size":%d,"bus":"pod","addr":"0x08"}}`, vmemMiB<<20),
	},
	"larger ext4": {
		fmt.Sprintf(`{"execute":"block_resize","arguments":{"node-name":"growext4","size":%d}}`, grownMiB<<20),
	},
	"larger xfs": {
		fmt.Sprintf(`{"execute":"block_resize","arguments":{"node-name":"growxfs","size":%d}}`, grownMiB<<20),
	},
	"virtio-mem back": {
		`{"execute":"qom-set","arguments":{"path":"/machine/peripheral/vmem0","property":"requested-size","value":0}}`,
	},
}

// wants asks the host to hot-plug something, which appears some time later.
func wants(what string) { fmt.Println("\n"+wish, what) }

// disks makes the images of the guest's disks in dir and returns QEMU's
// arguments for those that it starts with.
func disks(t *testing.T, dir string) []string {
	t.Helper()
	tree := filepath.Join(dir, "tree")
	for _, sub := range []string{"bin", "proc", "sys", "dev", "tmp", "empty"} {
		if err := os.MkdirAll(filepath.Join(tree, "rootfs", sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tree, "rootfs/bin/busybox"), read(t, busybox(t)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("busybox", filepath.Join(tree, "rootfs/bin/sh")); err != nil {
		t.Fatal(err)
	}
	for image, content := range map[string]string{"rootfs.img": tree, "upper.img": filepath.Join(tree, "rootfs/empty"), "late.img": tree} {
		cmd := exec.Command("mkfs.ext4", "-q", "-d", content, filepath.Join(dir, image), "24M")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make disk: %v\n%s", err, text)
		}
	}
	for _, image := range []string{"raw.img", "lun.img"} {
		if err := os.WriteFile(filepath.Join(dir, image), bytes.Repeat([]byte("raw disk\n"), 1<<16), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	drive := func(id, image, device string) []string {
		return []string{
			"-blockdev", fmt.Sprintf("driver=raw,node-name=%s,file.driver=file,file.filename=%s/%s", id, dir, image),
			"-device", device + ",drive=" + id,
		}
	}
	args := drive("rootfs", "rootfs.img", "virtio-blk-pci,bus=pod,addr=0x03")
	if makeErofs(t, dir) {
		args = append(args, drive("erofs", "erofs.img", "virtio-blk-pci,bus=pod,addr=0x09")...)
		args = append(args, drive("blob", "blob.img", "virtio-blk-pci,bus=pod,addr=0x0a")...)
	}
	args = append(args, drive("growext4", growing(t, dir, "ext4", "-q"), "virtio-blk-pci,bus=pod,addr=0x0b")...)
	args = append(args, "-device", "virtio-scsi-pci,id=scsi,bus=pod,addr=0x04")
	if hasProgram("mkfs.xfs") {
		args = append(args, drive("growxfs", growing(t, dir, "xfs", "-q"), "scsi-hd,bus=scsi.0,scsi-id=5,lun=0")...)
	}
	args = append(args, drive("upper", "upper.img", "scsi-hd,bus=scsi.0,scsi-id=3,lun=0")...)
	return append(args, drive("raw", "raw.img", "scsi-hd,bus=scsi.0,scsi-id=3,lun=7")...)
}

// Sizes of the disks that grow, the first being the least that mkfs.xfs takes.
const (
	smallMiB = 320
	grownMiB = 2048
)

// growing makes the image of a file system that will be larger, and returns its
// name in dir.
func growing(t *testing.T, dir, fstype string, args ...string) string {
	t.Helper()
	name := "grow-" + fstype + ".img"
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, smallMiB<<20); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command("mkfs."+fstype, append(args, file)...).CombinedOutput(); err != nil {
		t.Fatalf("make disk: %v\n%s", err, text)
	}
	return name
}

// makeErofs makes a file system on two disks, of which the second has the
// content. It needs erofs-utils, and returns false if they are missing.
func makeErofs(t *testing.T, dir string) bool {
	t.Helper()
	if !hasErofs() {
		t.Log("erofs on two disks is not tested: no mkfs.erofs (erofs-utils)")
		return false
	}
	tree := filepath.Join(dir, "erofs")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tree+"/file", []byte(erofsContent), 0o644); err != nil {
		t.Fatal(err)
	}
	blob := dir + "/blob.img"
	if err := os.WriteFile(blob, nil, 0o644); err != nil { // erofs-utils 1.8 does not make it
		t.Fatal(err)
	}
	cmd := exec.Command("mkfs.erofs", "--quiet", "--blobdev="+blob, "--chunksize=4096", dir+"/erofs.img", tree)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make erofs: %v\n%s", err, text)
	}
	return true
}

const (
	erofsContent = "on the other disk\n"
	// erofsKey tells the guest that its disks have an erofs.
	erofsKey = "guesttest_erofs"
	// xfsKey tells it that it has an xfs.
	xfsKey = "guesttest_xfs"
)

func hasErofs() bool { return hasProgram("mkfs.erofs") }

func hasProgram(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

// console collects the guest's output, and hot-plugs what the guest wants.
type console struct {
	wanted chan string

	mu   sync.Mutex
	text []byte
	seen int // how many lines of text were scanned
}

// Write never blocks: there are fewer wishes than wanted has room for.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, p...)
	for {
		line, _, whole := bytes.Cut(c.text[c.seen:], []byte("\n"))
		if !whole {
			return len(p), nil
		}
		c.seen += len(line) + 1
		if what, ok := strings.CutPrefix(strings.TrimSpace(string(line)), wish+" "); ok {
			c.wanted <- what
		}
	}
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(string(c.text), "\r", "")
}

// plug serves the guest's wishes until ctx is done.
func (c *console) plug(ctx context.Context, dir string) (err error) {
	for {
		select {
		case <-ctx.Done():
			return err
		case what := <-c.wanted:
			commands := append([]string{`{"execute":"qmp_capabilities"}`}, plugs[what]...)
			if failed := tell(ctx, dir, commands); failed != nil {
				err = errors.Join(err, fmt.Errorf("plug in %s: %w", what, failed))
			}
		}
	}
}

// tell sends QMP commands, each after the previous one's answer.
func tell(ctx context.Context, dir string, commands []string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", dir+"/qmp")
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	answers := json.NewDecoder(conn)
	for _, command := range commands {
		if _, err := fmt.Fprintln(conn, strings.ReplaceAll(command, "DIR", dir)); err != nil {
			return err
		}
		for {
			var answer struct{ Return, Error json.RawMessage }
			if err := answers.Decode(&answer); err != nil {
				return err
			}
			if answer.Error != nil {
				return fmt.Errorf("%s: %s", command, answer.Error)
			}
			if answer.Return != nil {
				break // Other messages are the greeting and events.
			}
		}
	}
	return nil
}
