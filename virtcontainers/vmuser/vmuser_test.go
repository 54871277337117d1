package vmuser

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
)

// holderEnv makes this test binary hold an id of the file that its value names.
const holderEnv = "KATABOX_TEST_HOLDER"

var few = Range{First: 4_000_000_000, Count: 20}

func TestMain(m *testing.M) {
	if file, ok := os.LookupEnv(holderEnv); ok {
		os.Exit(hold(file))
	}
	os.Exit(m.Run())
}

// hold takes an id, reports it and waits to be killed.
func hold(file string) int {
	_, err := Take(file, Range{few.First, 1})
	fmt.Println(err)
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}

func TestEachHasItsOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run", "users")
	users := make([]*User, few.Count)
	var all sync.WaitGroup
	for i := range users {
		all.Go(func() {
			var err error
			if users[i], err = Take(file, few); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	seen := make(map[uint32]bool)
	for _, u := range users {
		if u == nil {
			t.FailNow()
		}
		if seen[u.ID()] || u.ID() < few.First || u.ID() >= few.First+few.Count {
			t.Errorf("id %d is given twice, or is not of the range", u.ID())
		}
		seen[u.ID()] = true
	}
	if _, err := Take(file, few); !errors.Is(err, errdefs.ErrResourceExhausted) {
		t.Errorf("one too many: %v", err)
	}
	if err := users[7].Release(); err != nil {
		t.Fatal(err)
	}
	again, err := Take(file, few)
	if err != nil || again.ID() != users[7].ID() {
		t.Fatalf("%v, %v; want the released one, %d", again, err, users[7].ID())
	}
	users[7] = again
	for _, u := range users {
		if err := u.Release(); err != nil {
			t.Error(err)
		}
	}
}

// The id of a killed process is free without any clean-up.
func TestKilledHolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderEnv+"="+file)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if said, _ := bufio.NewReader(out).ReadString('\n'); said != "<nil>\n" {
		t.Errorf("the holder says %q", said)
	}
	if _, err := Take(file, Range{few.First, 1}); !errors.Is(err, errdefs.ErrResourceExhausted) {
		t.Errorf("while it is held: %v", err)
	}
	_ = holder.Process.Kill()
	_ = holder.Wait()
	u, err := Take(file, Range{few.First, 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Release(); err != nil {
		t.Error(err)
	}
}

func TestMapped(t *testing.T) {
	for _, test := range []struct {
		table string
		want  bool
	}{
		{"         0          0 4294967295\n", true},
		{"0 1000 1\n1 100000 65536\n", false},
		{"0 1000 1\n4000000000 5 20\n", true},
		{"4000000000 5 19\n", false},
		{"4000000001 5 30\n", false},
		{"", false}, {"x y z\n", false},
	} {
		if got := mapped(test.table, few); got != test.want {
			t.Errorf("%q: %v", test.table, got)
		}
	}
	if os.Geteuid() == 0 && !Usable(Range{0, 1}) {
		t.Error("root's own id is not usable")
	}
}
