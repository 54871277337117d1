package volume

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guestfs/volume/direct"
)

// The plugins' names in paths (Kubernetes, pkg/volume/*: "kubernetes.io/empty-dir",
// whose slash is written as a tilde).
const (
	emptyDirPlugin = "kubernetes.io~empty-dir"
	csiPlugin      = "kubernetes.io~csi"
)

// watchedPlugins are those whose files the kubelet updates and programs watch.
var watchedPlugins = []string{
	"kubernetes.io~secret", "kubernetes.io~configmap", "kubernetes.io~projected", "kubernetes.io~downward-api",
}

// location is what a path reveals about one of the kubelet's volumes.
type location struct {
	// pod is the pod's directory.
	pod string
	// plugin is the plugin's directory; empty for a subPath.
	plugin string
	// volume is the volume's name.
	volume string
}

// subPath reports whether the path is a part of the volume that the kubelet has
// bind-mounted elsewhere.
func (l location) subPath() bool { return l.plugin == "" }

// dir returns the volume's directory. It must not be called for a subPath.
func (l location) dir() string { return filepath.Join(l.pod, "volumes", l.plugin, l.volume) }

// locate reads a path. Both are absolute, clean and without symbolic links.
func locate(kubeletDir, path string) (location, bool) {
	below, ok := strings.CutPrefix(path, strings.TrimSuffix(kubeletDir, "/")+"/pods/")
	if !ok {
		return location{}, false
	}
	// <pod>/volumes/<plugin>/<volume>[/...], <pod>/volume-subpaths/<volume>/<container>/<index>
	words := strings.SplitN(below, "/", 5)
	l := location{pod: filepath.Join(kubeletDir, "pods", words[0])}
	switch {
	case len(words) >= 4 && words[1] == "volumes":
		l.plugin, l.volume = words[2], words[3]
	case len(words) == 5 && words[1] == "volume-subpaths":
		l.volume = words[2]
	default:
		return location{}, false
	}
	return l, true
}

// isMessage reports whether a path, as for locate, is that of the file in which the
// kubelet finds a container's termination message: <pod>/containers/<container>/<name>
// (Kubernetes, pkg/kubelet/kuberuntime, generateMountBindings and makeMounts).
func isMessage(kubeletDir, path string) bool {
	below, ok := strings.CutPrefix(path, strings.TrimSuffix(kubeletDir, "/")+"/pods/")
	words := strings.Split(below, "/")
	return kubeletDir != "" && ok && len(words) == 4 && words[1] == "containers"
}

// IsVolume reports whether the source of a bind mount at /dev/shm is a user's
// volume, and not the engine's own shared memory. The latter is a tmpfs on a
// directory "shm" in the engine's state (containerd, CRI-O, Docker, Podman,
// nerdctl, iSulad). What cannot be inspected counts as a volume, so that the
// error is reported.
func IsVolume(kubeletDir, path string) bool {
	c := newClassifier(Options{KubeletDir: kubeletDir}, direct.Default)
	src, err := c.look(path)
	return err != nil || src.located || !isEngineShm(src.path)
}

func isEngineShm(path string) bool {
	if filepath.Base(path) != "shm" {
		return false
	}
	medium, err := mediumOf(path)
	return err == nil && medium.magic == unix.TMPFS_MAGIC
}

// within returns path relative to dir, "" for dir itself; false if it is not
// below dir.
func within(dir, path string) (string, bool) {
	if path == dir {
		return "", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
