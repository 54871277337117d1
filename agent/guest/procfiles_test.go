package guest

import (
	"strings"
	"testing"

	"github.com/katabox/katabox/agent/api"
)

func TestProcFiles(t *testing.T) {
	files := ProcFiles()
	for name, file := range map[string]struct {
		data []byte
		want string
	}{
		"stat": {files.Stat, "cpu "}, "loadavg": {files.Loadavg, "/"}, "meminfo": {files.Meminfo, "MemTotal:"}, "vmstat": {files.Vmstat, "nr_free_pages "},
		"net/dev": {files.NetDev, "lo:"}, "self/stat": {files.AgentStat, ")"}, "self/status": {files.AgentStatus, "VmRSS:"}, "self/io": {files.AgentIo, "rchar:"},
	} {
		if text := string(file.data); !strings.Contains(text, file.want) || !strings.HasSuffix(text, "\n") || len(text) > api.MaxProcFile {
			t.Errorf("%s: %q", name, text)
		}
	}
	if files.AgentFds < 3 {
		t.Errorf("%d files open", files.AgentFds)
	}
	if procFile("none") != nil {
		t.Error("a file that is not there was read")
	}
}
