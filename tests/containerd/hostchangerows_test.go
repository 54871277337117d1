package containerd

import (
	"os"
	"path/filepath"
	"time"
)

// hostChange is something that happens to a volume on the host while a container
// runs. Each has its own directory, with a file f that says "before".
type hostChange struct {
	name string
	// make prepares the directory.
	make func(dir string) error
	// change is the change on the host.
	change func(dir string) error
	// look is a script that prints what a container sees in the directory;
	// "held" in it prints what f's descriptor shows to a process that opened f
	// before, "mounted" what is at a mount of f by itself.
	look string
	// unchanged is set if a container must not see the change.
	unchanged bool
	// always is set if it is seen even if the guest may cache without expiry.
	always bool
}

const showFile = "stat -c '%s %F' f; cat f"

// hostChanges are the changes that programs on a host make.
var hostChanges = []hostChange{
	{name: "rewritten with other text of the same length", look: showFile, change: inDir("f", rewrite("BEFORE\n"))},
	{name: "rewritten while open", look: "held", change: inDir("f", rewrite("BEFORE\n"))},
	{name: "grown", look: showFile, change: inDir("f", grow)},
	{name: "grown while open", look: "held", change: inDir("f", grow)},
	{name: "truncated", look: showFile, change: inDir("f", truncate)},
	{name: "truncated while open", look: "held", change: inDir("f", truncate)},
	{name: "replaced", look: showFile, change: inDir("f", replace)},
	{name: "replaced while open", look: "held; " + showFile, change: inDir("f", replace)},
	{name: "deleted", look: "cat f; ls", change: inDir("f", os.Remove)},
	{name: "deleted while open", look: "held; ls", change: inDir("f", os.Remove)},
	{name: "deleted and made anew", look: showFile, change: inDir("f", again)},
	{name: "deleted while open and made anew", look: "held; " + showFile, change: inDir("f", again)},
	{name: "made a directory", look: "stat -c %F f; ls f", change: inDir("f", func(path string) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.MkdirAll(filepath.Join(path, "below"), 0o755)
	})},
	{name: "mode and owner", look: "stat -c '%a %u:%g' f", change: inDir("f", func(path string) error {
		if err := os.Chown(path, 12, 34); err != nil {
			return err
		}
		return os.Chmod(path, 0o640)
	})},
	{name: "time", look: "stat -c %Y f", change: inDir("f", func(path string) error {
		return os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0))
	})},
	{name: "a new file, asked for before", look: "cat new", always: true, change: inDir("new", rewrite("new\n"))},
	{name: "a new file in a directory that was listed", look: "ls", change: inDir("new", rewrite("new\n"))},
	{
		name: "a directory renamed", look: "cat d/*; cat e/*", make: inDir("d", treeOf("inside")),
		change: func(dir string) error { return os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "e")) },
	},
	{
		name: "a directory replaced", look: "ls d; cat d/*", make: inDir("d", treeOf("inside")),
		change: inDir("d", func(path string) error {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			return treeOf("another")(path)
		}),
	},
	{
		name: "a link to another file", look: "readlink l; cat l", make: inDir("l", link("f")),
		change: func(dir string) error {
			if err := grow(filepath.Join(dir, "g")); err != nil {
				return err
			}
			return turn(filepath.Join(dir, "l"), "g")
		},
	},
	{name: "a mounted file rewritten", look: "mounted", change: inDir("f", grow)},
	{name: "a mounted file replaced", look: "mounted", unchanged: true, change: inDir("f", replace)},
	{name: "a mounted file deleted", look: "mounted", unchanged: true, change: inDir("f", os.Remove)},
	{name: "a ConfigMap", look: "readlink ..data; cat key; ls", make: configMap("1"), change: configMap("22")},
}

// inDir turns a change of a path into a change of its directory.
func inDir(name string, change func(path string) error) func(dir string) error {
	return func(dir string) error { return change(filepath.Join(dir, name)) }
}

func rewrite(text string) func(string) error {
	return func(path string) error { return os.WriteFile(path, []byte(text), 0o644) }
}

func grow(path string) error { return rewrite("before\nand after\n")(path) }

func truncate(path string) error { return os.Truncate(path, 3) }

func replace(path string) error {
	if err := rewrite("another file\n")(path + ".tmp"); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// again makes the file system reuse the old file's inode number for the new
// one, if it does so.
func again(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return rewrite("made anew\n")(path)
}

func link(target string) func(string) error {
	return func(path string) error { return os.Symlink(target, path) }
}

// turn atomically redirects a link.
func turn(path, target string) error {
	if err := os.Symlink(target, path+"_tmp"); err != nil {
		return err
	}
	return os.Rename(path+"_tmp", path)
}

func treeOf(name string) func(string) error {
	return func(path string) error {
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		return rewrite("in " + name + "\n")(filepath.Join(path, name))
	}
}

// configMap writes a version as the kubelet does (k8s.io/kubernetes,
// pkg/volume/util/atomic_writer.go): a new directory, to which ..data is
// redirected.
func configMap(version string) func(dir string) error {
	return func(dir string) error {
		in := func(name string) string { return filepath.Join(dir, name) }
		old, _ := os.Readlink(in("..data")) // none the first time
		if err := os.Mkdir(in("..v"+version), 0o755); err != nil {
			return err
		}
		if err := rewrite("version " + version + "\n")(in("..v" + version + "/key")); err != nil {
			return err
		}
		if err := turn(in("..data"), "..v"+version); err != nil {
			return err
		}
		if old == "" {
			return os.Symlink("..data/key", in("key"))
		}
		return os.RemoveAll(in(old))
	}
}
