package installer

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Paths on the node.
const (
	// Home is the directory with everything of Katabox on the node.
	Home        = "/opt/kata"
	versionsDir = Home + "/versions"
	current     = Home + "/current"
	// ShimPath is the path in the engines' configuration: it stays the same when
	// an upgrade changes its target.
	ShimPath = Home + "/bin/" + shimName
)

// links are the fixed names for other programs, and their targets.
var links = []struct{ name, target string }{
	{Home + "/bin", "current/bin"},
	{Home + "/share", "current/share"},
}

// refuseOthers returns an error if another installation is at the paths of this
// one's links.
func (n node) refuseOthers() error {
	for _, l := range append(links, struct{ name, target string }{current, "versions/"}) {
		path, err := n.link(l.name)
		if err != nil {
			return err
		}
		if !n.exists(l.name) {
			continue
		}
		if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, l.target) {
			return fmt.Errorf("%s on the node is not Katabox's: remove the other installation first", l.name)
		}
	}
	return nil
}

// addVersion copies a build's files into its directory, unless that exists: the
// directory gets its name when everything is in it and on disk.
func (n node) addVersion(name string, list []file) error {
	dir := path.Join(versionsDir, name)
	if n.exists(dir) {
		return nil
	}
	fresh, err := n.link(versionsDir + "/.new")
	if err != nil {
		return err
	}
	if err := n.before("fill", dir); err != nil {
		return err
	}
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := fill(fresh, list); err != nil {
		return fmt.Errorf("copy to %s: %w", dir, err)
	}
	if err := n.before("rename", dir); err != nil {
		return err
	}
	if err := os.Rename(fresh, filepath.Join(filepath.Dir(fresh), name)); err != nil {
		return err
	}
	return syncPath(filepath.Dir(fresh))
}

// fill copies a build to the directory fresh.
func fill(fresh string, list []file) error {
	made := map[string]bool{fresh: true}
	for _, f := range list {
		to := filepath.Join(fresh, f.name)
		if err := makeDirs(filepath.Dir(to), made); err != nil {
			return err
		}
		if err := copyFile(f.from, to, f.mode); err != nil {
			return err
		}
	}
	for dir := range made {
		if err := syncPath(dir); err != nil {
			return err
		}
	}
	return nil
}

// makeDirs makes a directory below the first of made, and adds it and its new
// parents to made.
func makeDirs(dir string, made map[string]bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for ; !made[dir]; dir = filepath.Dir(dir) {
		made[dir] = true
		if err := os.Chmod(dir, 0o755); err != nil { // the umask may have removed bits
			return err
		}
	}
	return nil
}

// switchTo makes a version current: new pods use it.
func (n node) switchTo(name string) error {
	for _, l := range links {
		if err := n.pointTo(l.name, l.target); err != nil {
			return err
		}
	}
	return n.pointTo(current, "versions/"+name)
}

// versions lists the directories of versions.
func (n node) versions() ([]string, error) { return n.list(versionsDir) }

// removeVersions removes all versions except those in keep, and what a killed
// installer left.
func (n node) removeVersions(keep map[string]bool) error {
	names, err := n.versions()
	if err != nil {
		return err
	}
	for _, name := range names {
		if keep[name] {
			continue
		}
		if err := n.removeTree(path.Join(versionsDir, name)); err != nil {
			return fmt.Errorf("remove version %s: %w", name, err)
		}
	}
	return nil
}

// removeHome removes everything of Katabox below Home; other files stay.
func (n node) removeHome() error {
	if err := n.removeVersions(nil); err != nil {
		return err
	}
	names := []string{current, versionsDir, pendingFile}
	for _, l := range links {
		names = append(names, l.name)
	}
	for _, name := range names {
		if _, err := n.remove(name); err != nil {
			return err
		}
	}
	return n.sweepHome()
}

// sweepHome removes what a killed installer left half-written.
func (n node) sweepHome() error {
	names := []string{current, pendingFile, dirsFile}
	for _, l := range links {
		names = append(names, l.name)
	}
	for _, name := range names {
		if _, err := n.remove(name + newSuffix); err != nil {
			return err
		}
	}
	return nil
}

// makeHome makes the directories that the later steps need.
func (n node) makeHome() error {
	for _, dir := range []string{path.Dir(Home), Home, versionsDir} {
		if err := n.mkdir(dir); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	return n.sweepHome()
}
