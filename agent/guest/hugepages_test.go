package guest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

const pages2M = "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"

// hugeMachine has 3 huge pages of 2 MiB, none of 1 GiB, and 64 MiB.
func hugeMachine(t *testing.T) *fakeMachine {
	t.Helper()
	f := newMachine(t)
	f.write(t, filepath.Join(f.sys, pages2M), "3\n")
	f.write(t, f.sys+"/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n")
	f.write(t, f.proc+"/meminfo", "MemTotal:       99999 kB\nMemAvailable:   65536 kB\n")
	return f
}

func (f *fakeMachine) pages(t *testing.T) string {
	t.Helper()
	return f.reads(t, pages2M)
}

func TestHugepages(t *testing.T) {
	f := hugeMachine(t)
	a := []*api.Storage{f.disk("hugetlbfs", "", "", "a", "nosuid", "pagesize=2Mi", "size=10M", "mode=0700")}
	b := []*api.Storage{f.disk("hugetlbfs", "", "", "b", "size=2097153,pagesize=2048K")}
	must(t, f.Mount(t.Context(), a))
	must(t, f.Mount(t.Context(), b))
	if got := f.pages(t); got != "10" {
		t.Errorf("%s huge pages, want 3, 5 and 2", got)
	}
	if err := f.Mount(t.Context(), a); !errdefs.IsAlreadyExists(err) {
		t.Errorf("the same target again: %v", err)
	}
	must(t, f.Unmount(a))
	if got := f.pages(t); got != "5" {
		t.Errorf("%s huge pages, want 3 and 2", got)
	}
	must(t, f.Unmount(a))
	must(t, f.Unmount(b))
	if got := f.pages(t); got != "3" || len(f.hugepages) != 0 {
		t.Errorf("%s huge pages, want 3, and %v", got, f.hugepages)
	}
	want := []string{
		"mount hugetlbfs hugetlbfs run/a nosuid mode=0700,pagesize=2097152,size=10485760",
		"mount hugetlbfs hugetlbfs run/b pagesize=2097152,size=2097153",
		"unmount run/a", "unmount run/a", "unmount run/b",
	}
	if diff := cmp.Diff(want, f.done); diff != "" {
		t.Error(diff)
	}
}

func TestHugepagesRefused(t *testing.T) {
	for _, test := range []struct {
		options, want string
		is            func(error) bool
	}{
		{"", "want pagesize=", errdefs.IsInvalidArgument},
		{"size=2M", "want pagesize=", errdefs.IsInvalidArgument},
		{"pagesize=2M,size=50%", `option size: "50%" is not a number of bytes`, errdefs.IsInvalidArgument},
		{"pagesize=,size=2M", `option pagesize: "" is not a number of bytes`, errdefs.IsInvalidArgument},
		{"pagesize=1000,size=2M", "in whole KiB", errdefs.IsInvalidArgument},
		{"pagesize=2M,size=9999999T", `"9999999T" is too much`, errdefs.IsInvalidArgument},
		{"pagesize=4M,size=8M", "no huge pages of 4096 KiB, but 1048576kB, 2048kB", errdefs.IsInvalidArgument},
		{"pagesize=2M,size=66M", "memory for 32 huge pages of 2048 KiB, want 33: give the machine more memory", errdefs.IsResourceExhausted},
		{"pagesize=1G,size=1G", "memory for 0 huge pages of 1048576 KiB, want 1", errdefs.IsResourceExhausted},
		{"pagesize=2M,size=16M", "memory for 4 huge pages of 2048 KiB, want 8", errdefs.IsResourceExhausted},
		{"pagesize=2M,size=6M", "mount hugetlbfs hugetlbfs: no such device", func(err error) bool { return err != nil }},
	} {
		f := hugeMachine(t)
		f.kernel.write = func(path, value string) error { // Never more than seven.
			var n int
			_, err := fmt.Sscan(value, &n)
			must(t, err)
			return writeFile(path, fmt.Sprint(min(n, 7), "\n"))
		}
		f.answers["mount hugetlbfs hugetlbfs run/x pagesize=2097152,size=6291456"] = []error{unix.ENODEV}
		err := f.Mount(t.Context(), []*api.Storage{f.disk("hugetlbfs", "", "", "x", test.options)})
		if err == nil || !strings.Contains(err.Error(), test.want) || !test.is(err) {
			t.Errorf("%q: %v, want %q", test.options, err, test.want)
		}
		if got := f.pages(t); got != "3" || len(f.hugepages) != 0 {
			t.Errorf("%q: %s huge pages, want 3, and %v", test.options, got, f.hugepages)
		}
	}
}

func FuzzParseHugepages(f *testing.F) {
	for _, seed := range []string{"pagesize=2M,size=10Mi,mode=0700", "size=1,pagesize=1024", "size=9223372036854775807T", ",,size", "pagesize=1Gi"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) {
		wanted, rest, err := parseHugepages(data)
		if err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Error(err)
			}
			return
		}
		again, same, err := parseHugepages(rest)
		if err != nil || again != wanted || same != rest || wanted.pageKiB == 0 {
			t.Errorf("%q: %+v %q, then %+v %q, %v", data, wanted, rest, again, same, err)
		}
	})
}
