package guest

import (
	"testing"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

func TestParseOptions(t *testing.T) {
	tests := []struct {
		line string
		want logrus.Level
	}{
		{"", logrus.InfoLevel},
		{"console=ttyS0 quiet agent.log=debug panic=-1\n", logrus.DebugLevel},
		{"agent.log=warn", logrus.WarnLevel},
		{"agent.log=debug agent.log=nonsense", logrus.DebugLevel},
		{"agent.log", logrus.InfoLevel},
		{"agent.later=1", logrus.InfoLevel},
	}
	for _, test := range tests {
		if got := parseOptions(test.line).LogLevel; got != test.want {
			t.Errorf("%q: %v, want %v", test.line, got, test.want)
		}
	}
}

func TestParseDebugConsole(t *testing.T) {
	for line, want := range map[string]bool{
		"quiet agent.debug_console panic=-1": true, "agent.log=debug": false, "": false, "my.agent.debug_console": false, "agent.debug_console_vport=1026": false,
	} {
		if got := parseOptions(line).DebugConsole; got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

func FuzzParseOptions(f *testing.F) {
	f.Add("root=/dev/sda agent.log=info")
	f.Fuzz(func(_ *testing.T, line string) { parseOptions(line) })
}

func TestParseMountOptions(t *testing.T) {
	tests := []struct {
		options []string
		flags   uintptr
		data    string
	}{
		{nil, 0, ""},
		{[]string{"ro", "nosuid"}, unix.MS_RDONLY | unix.MS_NOSUID, ""},
		{[]string{"ro,nodev,size=5m", "mode=0755"}, unix.MS_RDONLY | unix.MS_NODEV, "size=5m,mode=0755"},
		{[]string{"ro", "rw", "defaults"}, 0, ""},
		{[]string{"", ",dax"}, 0, "dax"},
	}
	for _, test := range tests {
		flags, data := parseMountOptions(test.options)
		if flags != test.flags || data != test.data {
			t.Errorf("%q: %#x %q, want %#x %q", test.options, flags, data, test.flags, test.data)
		}
	}
}
