package resource

// Under returns the need of a container that is created in a pod with that need by
// its annotations, the zero value if there are none. It marks limits of the
// container that are the pod's own. A pod may have limits itself (Kubernetes'
// pod-level resources, spec.resources): then the kubelet gives its limit to each
// container without one (pkg/kubelet/kuberuntime, getMemoryLimit, getCPULimit), and
// the pod's cgroup bounds them together.
//
// Without such limits the pod's are the sums of its containers' limits, which at
// most one container reaches alone.
func (n Need) Under(pod Need) Need {
	n.podsMemory = pod.memory > 0 && n.memory == pod.memory
	n.podsCPU = pod.cpu > 0 && !pod.requested && n.cpu == pod.cpu
	return n
}

// Updated returns the container's need after an update to other limits. Those that
// were the pod's own remain it.
func (n Need) Updated(to Need) Need {
	to.podsMemory, to.podsCPU = n.podsMemory, n.podsCPU
	return to
}

// Outdated returns the pod's need after one of its containers was updated, or created
// again, with the need after instead of before. Where the container has the pod's own
// limit, the pod's is now the same: the kubelet resizes the pod by updates of its
// containers, and passes the new limit to those that it creates again. Another limit may
// have been a part of the pod's sum: then what the pod may use is no longer known, and
// zero.
func (n Need) Outdated(before, after Need) Need {
	n.memory = outdated(n.memory, before.memory, after.memory, before.podsMemory)
	n.cpu = outdated(n.cpu, before.cpu, after.cpu, before.podsCPU)
	return n
}

func outdated(pod, before, after uint64, pods bool) uint64 {
	switch {
	case before == after:
		return pod
	case pods:
		return after
	}
	return 0
}

// Once returns the needs of a pod's containers, without those that share the pod's
// own limit with another one.
func Once(containers []Need) []Need {
	var memory, cpu uint64
	needs := make([]Need, len(containers), len(containers)+1)
	for i, n := range containers {
		if n.podsMemory {
			memory, n.memory = max(memory, n.memory), 0
		}
		if n.podsCPU {
			cpu, n.cpu = max(cpu, n.cpu), 0
		}
		needs[i] = n
	}
	return append(needs, Need{memory: memory, cpu: cpu})
}
