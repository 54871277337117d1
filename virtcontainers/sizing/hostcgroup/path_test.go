package hostcgroup

import (
	"path"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestPodPath(t *testing.T) {
	for _, tt := range []struct{ cgroups, want string }{
		{"/kubepods/burstable/pod1/c1", "/kubepods/burstable/pod1/kata_s1"},
		{"kubepods/pod1/c1", "/kubepods/pod1/kata_s1"},
		{"/default/c1", "/default/kata_s1"},
		{"c1", "/kata_s1"},
		{"/", "/kata_s1"},
		{"/a/../../b/c1", "/b/kata_s1"},
		{"../../../c1", "/kata_s1"},
		{"/a//b/c1/", "/a/b/kata_s1"},
		{"/a.slice/cri:one:two", "/a.slice/kata_s1"},
		{"a.slice:cri-containerd:c1", "/a.slice/kata_s1"},
		{"kubepods-burstable-pod1_2.slice:cri-containerd:c1",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/kata_s1"},
		{":docker:c1", "/system.slice/kata_s1"},
		{"-.slice:cri:c1", "/kata_s1"},
		{"a:b", "/kata_s1"},
	} {
		if got, err := podPath(tt.cgroups, "s1"); got != tt.want || err != nil {
			t.Errorf("%q: %q, %v, want %q", tt.cgroups, got, err, tt.want)
		}
	}
	for _, wrong := range []string{"a:b:c", "-a.slice:p:n", "a-.slice:p:n", "a--b.slice:p:n", ".slice:p:n", "/a\x00/b", "/a\nb/c"} {
		if got, err := podPath(wrong, "s1"); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %q, %v", wrong, got, err)
		}
	}
}

// Whatever an engine writes, the cgroup is below the hierarchy's root and has
// the prefix that operators expect.
func FuzzPodPath(f *testing.F) {
	for _, seed := range []string{"/kubepods/pod1/c1", "a-b.slice:cri-containerd:c1", ":p:n", "-.slice:p:n", "../..", "a:b:c", "/a/./b//c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cgroups string) {
		got, err := podPath(cgroups, "s1")
		if err != nil {
			return
		}
		if !path.IsAbs(got) || path.Clean(got) != got || path.Base(got) != "kata_s1" || strings.Contains(got, "\x00") {
			t.Errorf("%q gives %q", cgroups, got)
		}
	})
}
