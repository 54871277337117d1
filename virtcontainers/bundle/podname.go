package bundle

import "cmp"

// PodName is a pod's name in Kubernetes; unknown parts are empty.
type PodName struct {
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// PodNameOf finds the pod's name in the annotations of its sandbox's container:
// containerd's, or the kubelet's labels as CRI-O has them.
func PodNameOf(annotations map[string]string) PodName {
	find := func(containerd, kubelet string) string {
		return cmp.Or(annotations["io.kubernetes.cri.sandbox-"+containerd], annotations["io.kubernetes.pod."+kubelet])
	}
	return PodName{Name: find("name", "name"), Namespace: find("namespace", "namespace"), UID: find("uid", "uid")}
}
