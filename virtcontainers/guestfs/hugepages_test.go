package guestfs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// mounts is a Guest that remembers its storages, or fails to add them.
type mounts struct {
	files
	storages *[]*api.Storage
	err      *error
}

func (m mounts) AddStorages(_ context.Context, storages []*api.Storage) error {
	*m.storages = append(*m.storages, storages...)
	return *m.err
}

// The huge pages of a pod are reserved once, for containers whose specs do not limit
// their own. What failed is tried again by the next container.
func TestPodHugepages(t *testing.T) {
	p, _, agent := newPod(t)
	var got []*api.Storage
	failure := errors.New("too little memory")
	p.Connect(mounts{agent, &got, &failure}, func() bool { return false })
	limits := []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}, {Pagesize: "1GB"}, {Pagesize: "64KB", Limit: 1 << 63}}

	limited := p.Container(request(t))
	limited.Bundle.Spec.Linux.Resources = &specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}}}
	if err := limited.ReservePodHugepages(t.Context(), limits); err != nil || len(got) > 0 {
		t.Errorf("with limits of the container: %v, %v", got, err)
	}
	if err := p.Container(request(t)).ReservePodHugepages(t.Context(), limits); !errors.Is(err, failure) || !strings.Contains(err.Error(), "2MB") {
		t.Errorf("a guest without the memory: %v", err)
	}
	got, failure = nil, nil
	for range 2 {
		if err := p.Container(request(t)).ReservePodHugepages(t.Context(), limits); err != nil {
			t.Error(err)
		}
	}
	if len(got) != 1 || got[0].GetDriver() != "hugetlbfs" || !slices.Equal(got[0].GetOptions(), []string{"pagesize=2M", "size=4194304"}) {
		t.Errorf("storages %v", got)
	}
}

// A volume of huge pages for which nothing says how many it may have is in the log.
func TestVolumeWithoutHugepages(t *testing.T) {
	logger, lines := logtest.NewNullLogger()
	ctx := log.WithLogger(t.Context(), logrus.NewEntry(logger))
	p, _, _ := newPod(t)
	some := []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}}
	for name, test := range map[string]struct {
		options []string
		limits  []specs.LinuxHugepageLimit
		said    bool
	}{
		"unlimited":       {options: []string{"mode=0755", "pagesize=2097152"}, said: true},
		"limits of zero":  {options: []string{"pagesize=2097152"}, limits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}}, said: true},
		"a sizeLimit":     {options: []string{"pagesize=2097152", "size=4194304"}},
		"limits of a pod": {options: []string{"pagesize=2097152"}, limits: some},
		"no such volume":  {},
		"other volumes":   {options: []string{"mode=0755"}, limits: some},
	} {
		lines.Reset()
		c := p.Container(request(t))
		if test.options != nil {
			c.noteHugepages(volume.Volume{Kind: volume.Hugepages, Bind: guestspec.Bind{Source: "/huge"}, Options: test.options})
			c.noteHugepages(volume.Volume{Kind: volume.Memory, Bind: guestspec.Bind{Source: "/memory"}})
		}
		if err := c.ReservePodHugepages(ctx, test.limits); err != nil {
			t.Error(err)
		}
		said := len(lines.AllEntries()) == 1 && lines.LastEntry().Data["volume"] == "/huge"
		if said != test.said || !test.said && len(lines.AllEntries()) > 0 {
			t.Errorf("%s: the log has %v", name, lines.AllEntries())
		}
	}
}
