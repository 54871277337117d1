package child

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// jailEnv makes this program the stage that shuts itself into a Jail and ends
// in another program. Its value is the jail, in JSON.
const jailEnv = "KATABOX_JAIL"

// Jail is what a child is given of its host, and as whom it runs: no
// capability, none to be had by executing something, no new privileges, and its
// own root directory, which holds what is named here, cannot be written to, and
// from which no mount of the host's can be reached. There is no /proc.
type Jail struct {
	// UID and GID are the child's; it is in no other group. 0 leaves those of
	// this process.
	UID, GID uint32
	// Show are paths of the host that are there too, under the same names,
	// read-only and without what is mounted below them: directories, files,
	// symbolic links. Those that the host has not are left out.
	Show []string
	// Files are single files to read. One that is not for everybody to read is
	// copied.
	Files []Shown
	// Devices are character devices, which the child's user alone may open,
	// under the same names.
	Devices []string
	// Dirs are directories, which should be the child's user's, to write in.
	Dirs []Shown

	devices []device
}

// Shown is a path of the host and what it is called in a Jail; both are
// absolute.
type Shown struct{ Path, Name string }

// env is the environment of the stage: that of the child, and the jail.
func (j *Jail) env(env []string) ([]string, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("describe jail: %w", err)
	}
	return append(env[:len(env):len(env)], jailEnv+"="+string(text)), nil
}

// check refuses names that would lead out of the jail while it is made.
func (j *Jail) check() error {
	names := append([]string(nil), j.Show...)
	names = append(names, j.Devices...)
	for _, s := range append(j.Files[:len(j.Files):len(j.Files)], j.Dirs...) {
		names = append(names, s.Path, s.Name)
	}
	for _, name := range names {
		if !filepath.IsAbs(name) || filepath.Clean(name) != name {
			return fmt.Errorf("jail with %q: not an absolute and clean path", name)
		}
	}
	return nil
}

// The stage of a jail: it runs before any other code of the program's, on the
// main thread, which PDEATHSIG is set for.
func init() {
	text, ok := os.LookupEnv(jailEnv)
	if !ok {
		return
	}
	fmt.Fprintln(os.Stderr, jailStage(text))
	os.Exit(1)
}

// withoutStage is an environment without what is for the stages.
func withoutStage(environ []string) []string {
	env := []string{}
	for _, e := range environ {
		if !strings.HasPrefix(e, stageEnv+"=") && !strings.HasPrefix(e, jailEnv+"=") {
			env = append(env, e)
		}
	}
	return env
}
