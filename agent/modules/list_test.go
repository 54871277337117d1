package modules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const testText = `# comment
boot virtio /m/virtio.ko -

demand crc32c_intel /m/crc32c-intel.ko - crypto-crc32c
demand libcrc32c /m/libcrc32c.ko ?crc32c_intel
kernel nfnetlink /m/modules.zip/nfnetlink.ko - net-pf-16-proto-12
kernel nf_tables /m/modules.zip/nf_tables.ko nfnetlink,libcrc32c nfnetlink-subsys-10
kernel ip_set_hash_ipport /m/modules.zip/ip_set_hash_ipport.ko nfnetlink,builtin ip_set_hash:ip,port shared
kernel other /m/modules.zip/other.ko libcrc32c,crc32c_intel shared
`

func testList(t *testing.T) List {
	t.Helper()
	list, err := ParseList(strings.NewReader(testText))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestParseList(t *testing.T) {
	got := testList(t)[2:5]
	want := List{
		{When: Demand, Name: "libcrc32c", Path: "/m/libcrc32c.ko", Needs: []Need{{"crc32c_intel", true}}, Aliases: []string{}},
		{When: Kernel, Name: "nfnetlink", Path: "/m/modules.zip/nfnetlink.ko", Aliases: []string{"net-pf-16-proto-12"}},
		{When: Kernel, Name: "nf_tables", Path: "/m/modules.zip/nf_tables.ko",
			Needs: []Need{{"nfnetlink", false}, {"libcrc32c", false}}, Aliases: []string{"nfnetlink-subsys-10"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseListRefuses(t *testing.T) {
	for _, text := range []string{"boot", "boot a", "boot a /a.ko", "later a /a.ko -", "boot " + strings.Repeat("a", 1<<17)} {
		if list, err := ParseList(strings.NewReader(text)); err == nil {
			t.Errorf("%.20q was read as %v", text, list)
		}
	}
}

func TestReadList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "modules")
	if list, err := ReadList(path); err != nil || list != nil {
		t.Errorf("no file: %v, %v", list, err)
	}
	if err := os.WriteFile(path, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadList(path); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("nonsense: %v", err)
	}
}

func TestLookup(t *testing.T) {
	list := testList(t)
	for _, test := range []struct {
		name string
		want []string
	}{
		{"nf_tables", []string{"nf_tables"}},
		{"nf-tables", []string{"nf_tables"}},
		{"nfnetlink-subsys-10", []string{"nf_tables"}},
		{"nfnetlink-subsys-1", nil},
		{"ip_set_hash:ip,port", []string{"ip_set_hash_ipport"}},
		{"crypto-crc32c", []string{"crc32c_intel"}},
		{"shared", []string{"ip_set_hash_ipport", "other"}},
		{"/m/virtio.ko", nil},
		{"", nil},
	} {
		var got []string
		for _, place := range list.Lookup(test.name) {
			got = append(got, list[place].Name)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q: %s", test.name, diff)
		}
	}
}

func FuzzParseList(f *testing.F) {
	f.Add(testText, "shared")
	f.Add("kernel a /a a,?a,b a\nkernel b /b a,,? b", "a")
	f.Fuzz(func(t *testing.T, text, name string) {
		list, err := ParseList(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, place := range list.Lookup(name) {
			var paths []string
			err := list.Load(place, "", func(path, _ string) error {
				paths = append(paths, path)
				return nil
			})
			if err != nil || len(paths) == 0 || len(paths) > place+1 || paths[len(paths)-1] != list[place].Path {
				t.Errorf("loading %q loaded %q, %v", name, paths, err)
			}
		}
	})
}
