package child

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// jailEnv makes this program the stage that enters a Jail and then executes
// another program. Its value is the jail, in JSON.
const jailEnv = "KATABOX_JAIL"

// Jail is what a child can see of its host, and the user that it runs as. The
// child has no capabilities, cannot gain any by executing a program, and has
// no_new_privs. Its root directory holds only what is named here, is read-only,
// and no mount of the host can be reached from it. There is no /proc.
type Jail struct {
	// UID and GID are the child's; it is in no other group. 0 keeps those of
	// this process.
	UID, GID uint32
	// Show are paths of the host that are visible under the same names,
	// read-only and without what is mounted below them: directories, files,
	// symbolic links. Those that the host lacks are skipped.
	Show []string
	// Files are single files to read. A file that is not world-readable is
	// copied.
	Files []Shown
	// Devices are character devices, under the same names; only the child's
	// user may open them.
	Devices []string
	// Dirs are directories to write in; the child's user should own them.
	Dirs []Shown
	// Descriptors, if not empty, is the name of a directory with the child's
	// own descriptors, of which programs that open files only by name can open
	// an inherited one: /proc/self/fd, without /proc.
	Descriptors string

	devices []device
}

// Shown is a path of the host and its name in a Jail; both are absolute.
type Shown struct{ Path, Name string }

// env returns the environment of the stage: the child's, and the jail.
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
	if j.Descriptors != "" {
		names = append(names, j.Descriptors)
	}
	for _, name := range names {
		if !filepath.IsAbs(name) || filepath.Clean(name) != name {
			return fmt.Errorf("jail with %q: not an absolute and clean path", name)
		}
	}
	return nil
}

// The stage of a jail: it runs before any other code of the program, on the
// main thread, for which PDEATHSIG is set.
func init() {
	text, ok := os.LookupEnv(jailEnv)
	if !ok {
		return
	}
	fmt.Fprintln(os.Stderr, jailStage(text))
	os.Exit(1)
}

// withoutStage returns an environment without the stages' variables.
func withoutStage(environ []string) []string {
	env := []string{}
	for _, e := range environ {
		if !strings.HasPrefix(e, stageEnv+"=") && !strings.HasPrefix(e, jailEnv+"=") {
			env = append(env, e)
		}
	}
	return env
}
