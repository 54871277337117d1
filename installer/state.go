package installer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// State that must survive the death of the installer, one word or path in each
// line.
const (
	// pendingFile lists the services that must be restarted because their files
	// changed.
	pendingFile = Home + "/restart"
	// dirsFile lists the directories outside Home that the installer made.
	dirsFile = Home + "/directories"
)

// lines returns the lines of a file, or none if it does not exist.
func (n node) lines(name string) ([]string, error) {
	text, err := n.read(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return strings.Fields(string(text)), nil
}

// add adds the lines that a file lacks.
func (n node) add(name string, more []string) error {
	lines, err := n.lines(name)
	if err != nil {
		return err
	}
	for _, line := range more {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	_, err = n.write(name, []byte(strings.Join(lines, "\n")+"\n"))
	return err
}

// remember records directories that are about to be made.
func (n node) remember(dirs []string) error { return n.add(dirsFile, dirs) }

// forgetDirs removes the directories that the installer made, if they are empty.
func (n node) forgetDirs() error {
	dirs, err := n.lines(dirsFile)
	if err != nil {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		if _, err := n.remove(dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
	_, err = n.remove(dirsFile)
	return err
}
