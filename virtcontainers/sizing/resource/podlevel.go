package resource

// Once returns the needs of a pod's containers, of which all that have the pod's
// own limit share it. A pod may have limits itself (Kubernetes' pod-level
// resources, spec.resources): then the kubelet gives its limit to each container
// without one (pkg/kubelet/kuberuntime, getMemoryLimit, getCPULimit), and the pod's
// cgroup bounds them together. pod is the need by its annotations, the zero value if
// there are none.
//
// Without such limits the pod's are the sums of its containers' limits, which at
// most one container reaches alone.
func Once(pod Need, containers []Need) []Need {
	var memory, cpu bool
	needs := make([]Need, len(containers))
	for i, n := range containers {
		if pod.memory > 0 && n.memory == pod.memory {
			if memory {
				n.memory = 0
			}
			memory = true
		}
		if pod.cpu > 0 && !pod.requested && n.cpu == pod.cpu {
			if cpu {
				n.cpu = 0
			}
			cpu = true
		}
		needs[i] = n
	}
	return needs
}
