package guest

import (
	"testing"
	"time"

	"github.com/containerd/log"
	"github.com/google/go-cmp/cmp"
)

// All t_ fields of the log are in milliseconds, the host's and the agent's.
func TestBootTimesAreMilliseconds(t *testing.T) {
	got := bootTimes(6118*time.Microsecond, 145444*time.Microsecond)
	if diff := cmp.Diff(log.Fields{"t_mounts": 6.1, "t_modules": 145.4}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
