package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// threadLimits are what bounds the threads of all containers together.
type threadLimits struct {
	mu sync.Mutex // guards all below, and the cgroup's limit
	// reserved is for the kernel and the agent.
	reserved uint64
	// pod is the pod's own limit; 0 is none.
	pod uint64
}

// LimitThreads sets how many threads all containers together may have: as many as the
// kernel allows, without those that are reserved for itself and for the agent, and not
// more than LimitPodThreads allows. It is called again when the kernel allows more.
func (r *Runtime) LimitThreads(reserved uint64) error {
	r.threads.mu.Lock()
	defer r.threads.mu.Unlock()
	r.threads.reserved = reserved
	return r.threads.apply()
}

// LimitPodThreads sets the pod's own limit of threads, for all its containers together;
// 0 is none. Containers that have more keep them, and get no others.
func (r *Runtime) LimitPodThreads(most uint64) error {
	r.threads.mu.Lock()
	defer r.threads.mu.Unlock()
	had := r.threads.pod
	if most == had {
		return nil
	}
	r.threads.pod = most
	err := r.threads.apply()
	if err != nil {
		r.threads.pod = had // the next call tries again
	}
	return err
}

// apply sets the limit. The caller holds mu.
func (l *threadLimits) apply() error {
	if err := makeParent(); err != nil {
		return fmt.Errorf("limit the containers' threads: %w", err)
	}
	text, err := os.ReadFile(procSys + "/kernel/threads-max")
	if err != nil {
		return fmt.Errorf("limit the containers' threads: %w", err)
	}
	allowed, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return fmt.Errorf("limit the containers' threads: %w", err)
	}
	most, err := l.of(allowed)
	if err != nil {
		return err
	}
	limit := strconv.FormatUint(most, 10)
	if err := os.WriteFile(filepath.Join(parentDir, "pids.max"), []byte(limit), 0); err != nil {
		return fmt.Errorf("limit the containers' threads to %s: %w", limit, err)
	}
	return nil
}

// of returns the limit in a guest whose kernel allows that many threads.
func (l *threadLimits) of(allowed uint64) (uint64, error) {
	if allowed <= l.reserved {
		return 0, fmt.Errorf("limit the containers' threads: the kernel allows %d, want more than the %d reserved ones", allowed, l.reserved)
	}
	most := allowed - l.reserved
	if l.pod > 0 {
		most = min(most, l.pod)
	}
	return most, nil
}
