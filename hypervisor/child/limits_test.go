package child

import (
	"os"
	"os/exec"
	"testing"
)

// lowEnv is set in a test program with a low limit of open files.
const lowEnv = "KATABOX_TEST_LOW"

// A child may have as many open files as its hard limit allows, whatever this process
// was started with.
func TestOpenFiles(t *testing.T) {
	if os.Getenv(lowEnv) == "" {
		cmd := exec.Command("/bin/sh", "-c", `ulimit -Sn 1024 && ulimit -Hn 4096 && exec "$0" "$@"`,
			os.Args[0], "-test.run=^TestOpenFiles$", "-test.v")
		cmd.Env = append(os.Environ(), lowEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	for name, jail := range map[string]*Jail{"plain": nil, "jail": shellJail(t)} {
		if got := jailed(t, jail, "ulimit -Sn; ulimit -Hn"); got != "4096\n4096\n" {
			t.Errorf("%s: limits %q", name, got)
		}
	}
}
