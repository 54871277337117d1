package volume

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

func TestWatchedVolumes(t *testing.T) {
	n := newNode(t)
	for _, plugin := range []string{"secret", "configmap", "projected", "downward-api"} {
		dir := n.volume(plugin, "settings")
		write(t, dir+"/key", "value")
		n.expect(shared, dir, Volume{Kind: Copied})
		n.expect(Options{}, dir, Volume{Kind: Copied})
	}
	dir := n.volume("secret", "key")
	part := n.subPath("key", write(t, dir+"/id", "secret"))
	n.expect(shared, part, Volume{})
	n.expect(Options{}, part, Volume{Kind: Copied})
	ids := &guestspec.IDMap{UIDs: []specs.LinuxIDMapping{{HostID: 1, Size: 1}}, GIDs: []specs.LinuxIDMapping{{HostID: 1, Size: 1}}}
	if v, err := n.classify(shared, guestspec.Bind{Source: dir, IDMap: ids}); err != nil || v.Kind != Shared {
		t.Errorf("an idmapped secret: %v, %v", v.Kind, err)
	}
	if _, err := n.classify(Options{}, guestspec.Bind{Source: dir, IDMap: ids}); !errdefs.IsNotImplemented(err) {
		t.Errorf("an idmapped secret without a share: %v", err)
	}
}

// A volume that is too large to be copied is shared; without a share the error
// names the limit.
func TestTooLarge(t *testing.T) {
	n := newNode(t)
	many, large := n.volume("projected", "many"), n.volume("secret", "large")
	for i := range Limits.Files + 1 {
		write(t, filepath.Join(many, strconv.Itoa(i)), "")
	}
	if err := os.Truncate(write(t, large+"/key", ""), Limits.Bytes+1); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{many: "1024", large: "4194305"} {
		n.expect(shared, dir, Volume{})
		_, err := n.classify(Options{}, guestspec.Bind{Source: dir})
		if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "shared_fs") {
			t.Errorf("without a share: %v, want %q in it", err, want)
		}
	}
}

func TestWithoutShare(t *testing.T) {
	n := newNode(t)
	dir := t.TempDir()
	n.expect(Options{}, mkdir(t, dir+"/dir"), Volume{Kind: Copied})
	n.expect(Options{}, write(t, dir+"/file", ""), Volume{Kind: Copied})
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"fifo": "the source is a FIFO", "none": "does not exist",
	} {
		_, err := Classify(t.Context(), []guestspec.Bind{{Source: filepath.Join(dir, source)}}, Options{KubeletDir: n.kubelet})
		if err == nil || !strings.Contains(err.Error(), "mount "+filepath.Join(dir, source)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", source, err)
		}
		// With a share, sharing it reports the error.
		n.expect(shared, filepath.Join(dir, source), Volume{})
	}
}

// A container's termination message is copied back, and nothing else is.
func TestTerminationMessage(t *testing.T) {
	n := newNode(t)
	c := mkdir(t, n.kubelet+"/pods/uid/containers/c")
	message := write(t, c+"/1a2b3c4d", "")
	n.expect(Options{}, message, Volume{Kind: Copied, Back: true})
	n.expect(shared, message, Volume{})
	for _, source := range []string{
		write(t, n.kubelet+"/pods/uid/etc-hosts", ""), c, write(t, mkdir(t, c+"/deeper")+"/file", ""), write(t, t.TempDir()+"/file", ""),
	} {
		n.expect(Options{}, source, Volume{Kind: Copied})
	}
	if v, err := n.classify(Options{}, guestspec.Bind{Source: message, ReadOnly: true}); err != nil || v.Back {
		t.Errorf("a read-only one comes back: %v, %v", v.Back, err)
	}
}

// A source that is not a volume is shared, even if its path looks like one.
func TestOthersAreShared(t *testing.T) {
	n := newNode(t)
	outside := t.TempDir()
	binds := []guestspec.Bind{
		{Index: 3, Source: mkdir(t, outside+"/pods/uid/volumes/kubernetes.io~empty-dir/cache"), ReadOnly: true},
		{Index: 5, Source: write(t, mkdir(t, n.kubelet+"/pods/uid")+"/etc-hosts", "")},
		{Source: mkdir(t, n.kubelet+"/pods/uid/volumes")},
		{Source: mkdir(t, n.kubelet+"/pods/uid/volumes/kubernetes.io~empty-dir")},
		{Source: n.volume("nfs", "export")},
	}
	volumes, err := Classify(t.Context(), binds, Options{Share: true, KubeletDir: n.kubelet})
	if err != nil || len(volumes) != len(binds) {
		t.Fatal(volumes, err)
	}
	for i, v := range volumes {
		if v.Kind != Shared || v.Key != v.Source || v.Sub != "" || v.Index != binds[i].Index || v.ReadOnly != binds[i].ReadOnly {
			t.Errorf("%+v", v)
		}
	}
	volumes, err = Classify(t.Context(), binds[:1], Options{Share: true})
	if err != nil || volumes[0].Kind != Shared {
		t.Errorf("without a kubelet: %+v, %v", volumes, err)
	}
}

const assignment = `{"volume-type": "block", "device": "/dev/sdf", "fstype": "xfs", "options": ["ro", "nouuid"], "metadata": {"fsGroup": "9"}}`

var assignedDisk = Disk{Path: "/dev/sdf", ReadOnly: true, Fstype: "xfs", Options: []string{"nouuid"}, Group: &api.FSGroup{Gid: 9}}

func (n *node) assign(path string) {
	n.t.Helper()
	if err := n.direct.Add(path, []byte(assignment)); err != nil {
		n.t.Fatal(err)
	}
}

func TestDirect(t *testing.T) {
	n := newNode(t)
	// Without a kubelet.
	plain := mkdir(t, t.TempDir()+"/volume")
	n.assign(plain)
	want := Volume{Kind: Direct, Disk: assignedDisk, Assigned: plain}
	n.expect(shared, plain, want)
	n.expect(Options{}, plain, want)

	// The kubelet's directory is a link: the driver got the link's path, and
	// the engine resolved it.
	link := filepath.Join(t.TempDir(), "kubelet")
	if err := os.Symlink(n.kubelet, link); err != nil {
		t.Fatal(err)
	}
	volume := mkdir(t, n.volume("csi", "pv")+"/mount")
	want.Assigned = strings.Replace(volume, n.kubelet, link, 1)
	n.assign(want.Assigned)
	linked := Options{Share: true, KubeletDir: link}
	n.expect(linked, volume, want)

	part := chown(t, mkdir(t, volume+"/a/part"), Owner{Mode: 0o700, UID: 3, GID: 4})
	want.Key, want.Sub, want.SubMode = volume, "a/part", Owner{Mode: 0o700, UID: 3, GID: 4}
	n.expect(linked, part, want)
	n.expect(linked, n.subPath("pv", part), want)
}

func TestDirectRefused(t *testing.T) {
	n := newNode(t)
	volume := mkdir(t, n.volume("csi", "pv")+"/mount")
	n.assign(volume)
	ids := &guestspec.IDMap{UIDs: []specs.LinuxIDMapping{{HostID: 1, Size: 1}}, GIDs: []specs.LinuxIDMapping{{HostID: 1, Size: 1}}}
	if _, err := n.classify(shared, guestspec.Bind{Source: volume, IDMap: ids}); !errdefs.IsNotImplemented(err) {
		t.Errorf("idmapped: %v", err)
	}
	files, err := filepath.Glob(string(n.direct) + "/*/mountInfo.json")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	write(t, files[0], `{"device": "/dev/sdf", "fstype": "xfs", "metadata": {"encryptionKey": "k"}}`)
	if _, err := n.classify(shared, guestspec.Bind{Source: volume}); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "encryptionKey") {
		t.Errorf("encrypted: %v", err)
	}
}

func TestLocate(t *testing.T) {
	const kubelet = "/var/lib/kubelet"
	pod := kubelet + "/pods/uid"
	tests := map[string]location{
		pod + "/volumes/kubernetes.io~empty-dir/a":     {pod, "kubernetes.io~empty-dir", "a"},
		pod + "/volumes/kubernetes.io~csi/pv/mount":    {pod, "kubernetes.io~csi", "pv"},
		pod + "/volumes/kubernetes.io~csi/pv/mount/x/": {pod, "kubernetes.io~csi", "pv"},
		pod + "/volume-subpaths/a/c/0":                 {pod, "", "a"},
		pod + "/volume-subpaths/a/c":                   {},
		pod + "/volumes/kubernetes.io~empty-dir":       {},
		pod + "/etc-hosts":                             {},
		pod + "/containers/c/1":                        {},
		kubelet:                                        {},
		kubelet + "s/pods/uid/volumes/p/v":             {},
		"/pods/uid/volumes/p/v":                        {},
	}
	for path, want := range tests {
		got, ok := locate(kubelet, path)
		if got != want || ok != (want != location{}) {
			t.Errorf("%s: %+v, %v; want %+v", path, got, ok, want)
		}
	}
	if got, ok := locate("/", "/pods/uid/volumes/p/v"); !ok || got.dir() != "/pods/uid/volumes/p/v" {
		t.Errorf("a kubelet at the root: %+v", got)
	}
}

// A volume's directory is at or above the located path.
func FuzzLocate(f *testing.F) {
	f.Add("/k", "/k/pods/u/volumes/kubernetes.io~empty-dir/v/x")
	f.Add("/k", "/k/pods/u/volume-subpaths/v/c/0")
	f.Add("/", "/pods/u/volumes/p/v")
	f.Add("/k", "/k/pods//volumes///")
	f.Fuzz(func(t *testing.T, kubelet, path string) {
		kubelet, path = filepath.Clean("/"+kubelet), filepath.Clean("/"+path)
		l, ok := locate(kubelet, path)
		if !ok {
			return
		}
		if l.volume == "" {
			t.Errorf("no name: %+v", l)
		}
		if _, ok := within(kubelet, l.pod); !ok {
			t.Errorf("the pod %s is not below %s", l.pod, kubelet)
		}
		if !l.subPath() {
			if _, ok := within(l.dir(), path); !ok {
				t.Errorf("%s is not below %s", path, l.dir())
			}
		}
	})
}
