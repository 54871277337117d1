package tracing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// exporterEnv makes this program act as kata-runtime: it holds what to do.
const exporterEnv = "KATABOX_TEST_EXPORTER"

func TestMain(m *testing.M) {
	if how := os.Getenv(exporterEnv); how != "" && len(os.Args) == 2 && os.Args[1] == Command {
		if err := beExporter(how); err != nil {
			fmt.Fprintln(os.Stderr, err, strings.Repeat("x", 2*maxComplaint))
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func beExporter(how string) error {
	switch how, arg, _ := strings.Cut(how, ":"); how {
	case "fail":
		return errors.New("no receiver")
	case "hang": // until the shim has ended
		_, err := os.NewFile(GuardFD, "guard").Read(make([]byte, 1))
		if !errors.Is(err, io.EOF) {
			return err
		}
		return os.WriteFile(arg, nil, 0o600)
	default:
		b, err := ReadBatch(os.Stdin)
		if err != nil {
			return err
		}
		data, err := json.Marshal(b)
		if err != nil {
			return err
		}
		if err := os.WriteFile(arg+".new", data, 0o600); err != nil {
			return err
		}
		return os.Rename(arg+".new", arg)
	}
}

func someBatch() *Batch {
	return &Batch{Version: Version, Password: "secret", Spans: []Span{{Trace: someTrace, ID: someSpan, Name: "boot", Start: at(0), End: at(1)}}}
}

func TestByProgram(t *testing.T) {
	for _, last := range []bool{false, true} {
		got := filepath.Join(t.TempDir(), "got")
		t.Setenv(exporterEnv, "write:"+got)
		if err := ByProgram(os.Args[0])(t.Context(), someBatch(), last); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(got)
		for wait := 0; last && os.IsNotExist(err) && wait < 3000; wait++ {
			time.Sleep(10 * time.Millisecond)
			data, err = os.ReadFile(got)
		}
		want, _ := json.Marshal(someBatch())
		if err != nil || string(data) != string(want) {
			t.Errorf("last=%v: the process has read %s, %v, want %s", last, data, err, want)
		}
	}
}

func TestProgramFails(t *testing.T) {
	t.Setenv(exporterEnv, "fail")
	err := ByProgram(os.Args[0])(t.Context(), someBatch(), false)
	if err == nil || !strings.Contains(err.Error(), "no receiver") || len(err.Error()) > 2*maxComplaint {
		t.Errorf("%v", err)
	}
	for _, last := range []bool{false, true} {
		err := ByProgram("/no/such/program")(t.Context(), someBatch(), last)
		if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/no/such/program") {
			t.Errorf("last=%v: %v", last, err)
		}
	}
}

func TestProgramHangs(t *testing.T) {
	t.Setenv(exporterEnv, "hang:"+filepath.Join(t.TempDir(), "end"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := ByProgram(os.Args[0])(ctx, someBatch(), false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestReadBatchRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:              "EOF",
		`{"spans":7}`:   "decode batch",
		`{"version":2}`: "another release",
		`{"version":1,"spans":[{"trace":"zz","id":"` + someSpan + `"}]}`:                                                "hexadecimal",
		`{"version":1,"spans":[{"trace":"` + someTrace + `","id":"` + someSpan + `","parent":"` + someSpan[1:] + `"}]}`: "hexadecimal",
	} {
		if _, err := ReadBatch(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
