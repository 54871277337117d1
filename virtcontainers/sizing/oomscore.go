package sizing

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/containerd/log"
)

// scoreOOM sets the machine's oom_score_adj (proc(5)), that is how soon the
// host's kernel kills it when memory runs out, to the highest of its
// containers' scores, or 0 if none has one. QEMU would otherwise inherit the
// engine's score, with which it would outlive every other process of the host.
//
// Lowering the score needs CAP_SYS_RESOURCE; without it the machine keeps its
// score, which is logged.
func (p *Pod) scoreOOM(ctx context.Context) {
	select {
	case <-p.vm.Done():
		return // its pid may belong to another process now
	default:
	}
	p.setScore(ctx, p.vm.PID(), p.oomScore())
}

// scoreDaemon sets the score of the share's daemon (its pid; 0 for none), which
// would inherit the engine's as well. It stays: the daemon needs little memory,
// so the kernel finds the machine first.
func (p *Pod) scoreDaemon(ctx context.Context, daemon int) {
	if daemon != 0 {
		p.setScore(ctx, daemon, 0)
	}
}

func (p *Pod) setScore(ctx context.Context, pid, score int) {
	path := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
	if err := os.WriteFile(path, []byte(strconv.Itoa(score)), 0); err != nil && !p.opts.Ending() {
		log.G(ctx).WithError(err).WithField("score", score).Debug("an OOM score is not set")
	}
}

// oomScore returns the highest of the containers' scores. A pause container's
// does not count: with it the engine keeps the pause container alive longer
// than the others.
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
