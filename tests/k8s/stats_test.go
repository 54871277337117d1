package k8s

import (
	"encoding/json"
	"testing"
)

// podStats is what the kubelet says of a pod (its Summary API).
type podStats struct {
	PodRef           struct{ Name string }
	Containers       []containerStats
	CPU              struct{ UsageCoreNanoSeconds uint64 }
	Memory           struct{ WorkingSetBytes uint64 }
	Network          struct{ RxBytes, TxBytes uint64 }
	EphemeralStorage used         `json:"ephemeral-storage"`
	Volume           []volumeUsed `json:"volume"`
}

type used struct{ UsedBytes uint64 }

type volumeUsed struct {
	Name string
	used
}

type containerStats struct {
	Name         string
	CPU          struct{ UsageCoreNanoSeconds, UsageNanoCores uint64 }
	Memory       struct{ WorkingSetBytes, RSSBytes, PageFaults uint64 }
	Rootfs, Logs used
}

// stats returns the kubelet's statistics of a pod; empty if it has none yet.
func (s *stage) stats(pod string) podStats {
	s.Helper()
	var summary struct{ Pods []podStats }
	if err := json.Unmarshal([]byte(s.must("get", "--raw", "/api/v1/nodes/node/proxy/stats/summary")), &summary); err != nil {
		s.Fatal(err)
	}
	for _, p := range summary.Pods {
		if p.PodRef.Name == pod {
			return p
		}
	}
	return podStats{}
}

// lacks names what is missing in the statistics of the pod of TestStatistics, or
// wrong by more than a machine explains.
func (p podStats) lacks() string {
	const mib = 1 << 20
	within := func(n, low, high uint64) bool { return low*mib <= n && n <= high*mib }
	if len(p.Containers) != 2 || len(p.Volume) == 0 {
		return "containers or volumes"
	}
	for _, c := range p.Containers {
		memory := within(c.Memory.WorkingSetBytes, 0, 90) // what it wrote is in memory, on a tmpfs of the node
		if c.Name == "memory" {
			memory = within(c.Memory.WorkingSetBytes, 100, 160) && within(c.Memory.RSSBytes, 100, 160) && c.Memory.PageFaults > 100*mib/4096
		}
		switch cpu := c.CPU.UsageNanoCores; {
		case !memory:
			return "memory of " + c.Name
		case c.Name == "cpu" && (cpu < 1e7 || cpu > 5e8): // its limit, and what a sample is off
			return "CPU of " + c.Name
		case c.Name == "cpu" && (!within(c.Rootfs.UsedBytes, 30, 31) || c.Logs.UsedBytes == 0):
			return "files of " + c.Name
		}
	}
	for _, v := range p.Volume {
		if v.Name == "scratch" && !within(v.UsedBytes, 20, 21) {
			return "volume " + v.Name
		}
	}
	switch {
	case p.CPU.UsageCoreNanoSeconds == 0 || !within(p.Memory.WorkingSetBytes, 100, 4096):
		return "the pod's CPU or memory"
	case p.Network.RxBytes == 0 || p.Network.TxBytes == 0:
		return "network"
	case !within(p.EphemeralStorage.UsedBytes, 50, 52):
		return "ephemeral storage"
	}
	return ""
}

// The kubelet's statistics say what a pod uses: of each container, what it has
// used itself.
func TestStatistics(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("statistics", `
			volumes: [{name: scratch, emptyDir: {}}]
			containers:
			- name: cpu
			  image: $BUSYBOX
			  command: [sh, -c, "dd if=/dev/zero of=/scratch/file bs=1M count=20; dd if=/dev/zero of=/file bs=1M count=30; echo word; while :; do :; done"]
			  resources: {limits: {cpu: 300m}}
			  volumeMounts: [{name: scratch, mountPath: /scratch}]
			- {name: memory, image: $BUSYBOX, command: [sh, -c, "dd if=/dev/zero bs=100M count=1 | sleep 1000"]}`)
		s.ready(pod)
		var last podStats
		defer func() {
			if s.Failed() {
				s.Logf("the last statistics: %+v", last)
			}
		}()
		s.until("what the statistics lack", "", func() string {
			last = s.stats(pod)
			return last.lacks()
		})
	})
}
