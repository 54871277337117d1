package sizing

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/containerd/log"
)

// scoreOOM sets how soon the host's kernel kills the machine when memory runs
// out (oom_score_adj, proc(5)): as soon as the first of its containers to go
// would be, and 0 while none of them says. QEMU would inherit the engine's
// score, which makes it outlive every other process of the host.
//
// A score below the present one needs CAP_SYS_RESOURCE; without it the machine
// keeps the score that it has, which is logged.
func (p *Pod) scoreOOM(ctx context.Context) {
	select {
	case <-p.vm.Done():
		return // its pid may be another process's by now
	default:
	}
	path := fmt.Sprintf("/proc/%d/oom_score_adj", p.vm.PID())
	score := strconv.Itoa(p.oomScore())
	if err := os.WriteFile(path, []byte(score), 0); err != nil && !p.opts.Ending() {
		log.G(ctx).WithError(err).WithField("score", score).Debug("the machine's OOM score is not set")
	}
}

// oomScore is the highest of the containers' scores. A pause container's is its
// engine's way to keep it alive beside the containers that work, and does not
// count.
func (p *Pod) oomScore() int {
	score, said := 0, false
	for _, c := range p.living() {
		if c.Pause || c.Spec.Process == nil {
			continue
		}
		own := 0
		if adj := c.Spec.Process.OOMScoreAdj; adj != nil {
			own = *adj
		}
		if !said || own > score {
			score, said = own, true
		}
	}
	return score
}
