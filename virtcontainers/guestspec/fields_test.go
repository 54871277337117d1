package guestspec

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// leaf is a field of the spec without fields below it; its way is the indexes
// of the fields that lead to it.
type leaf struct {
	path string
	way  []int
}

// otherSystems are objects for kernels other than Linux; their fields are not
// listed.
var otherSystems = []string{"solaris", "windows", "vm", "zos", "freebsd"}

// leaves lists the fields below a type.
func leaves(kind reflect.Type, path string, way []int) (found []leaf) {
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice || kind.Kind() == reflect.Map {
		kind = kind.Elem()
	}
	if kind.Kind() != reflect.Struct || slices.Contains(otherSystems, path) {
		return []leaf{{path, way}}
	}
	for i := range kind.NumField() {
		f, next := kind.Field(i), append(slices.Clone(way), i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			found = append(found, leaves(f.Type, path, next)...)
		case path == "":
			found = append(found, leaves(f.Type, name, next)...)
		default:
			found = append(found, leaves(f.Type, path+"."+name, next)...)
		}
	}
	return found
}

// fates returns the list, by the paths of leaves.
func fates(t *testing.T) map[string]field {
	t.Helper()
	all := map[string]field{}
	add := func(path string, f field) {
		if _, twice := all[path]; twice {
			t.Errorf("%s is in the list twice", path)
		}
		all[path] = f
	}
	for _, f := range fields {
		for _, name := range strings.Fields(f.names) {
			add(f.path+"."+name, f)
		}
		if f.names == "" {
			add(f.path, f)
		}
	}
	return all
}

// set gives the field at the end of the way a value other than zero, and makes
// the objects on the way. Maps get the key "key".
func set(v reflect.Value, way []int) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		set(v.Elem(), way)
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		set(v.Index(0), way)
	case reflect.Map:
		elem := reflect.New(v.Type().Elem()).Elem()
		set(elem, way)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), elem)
	case reflect.Struct:
		if len(way) > 0 {
			set(v.Field(way[0]), way[1:])
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	default:
		v.Set(reflect.ValueOf(7).Convert(v.Type()))
	}
}

// get returns the field at the end of the way, as JSON; "" if something on the
// way is missing.
func get(v reflect.Value, way []int) string {
	switch v.Kind() {
	case reflect.Pointer:
		switch {
		case v.IsNil():
			return ""
		case len(way) == 0 && v.Elem().Kind() == reflect.Struct:
			return "{}" // one of otherSystems
		}
		return get(v.Elem(), way)
	case reflect.Slice:
		if v.Len() == 0 {
			return ""
		}
		return get(v.Index(0), way)
	case reflect.Map:
		if elem := v.MapIndex(reflect.ValueOf("key")); elem.IsValid() {
			return get(elem, way)
		}
		return ""
	case reflect.Struct:
		if len(way) > 0 {
			return get(v.Field(way[0]), way[1:])
		}
	}
	if v.IsZero() {
		return ""
	}
	data, _ := json.Marshal(v.Interface())
	return string(data)
}

// Each field of the specification is in the list and is treated as the list
// says, and the list has no other fields.
func TestEveryFieldHasAFate(t *testing.T) {
	want := fates(t)
	for _, l := range leaves(reflect.TypeFor[specs.Spec](), "", nil) {
		f, known := want[l.path]
		if !known {
			t.Errorf("%s has no row: what becomes of it?", l.path)
			continue
		}
		delete(want, l.path)
		t.Run(l.path, func(t *testing.T) { play(t, l, f.fate) })
	}
	for path := range want {
		t.Errorf("%s is in the list and not in the specification", path)
	}
}

// play sets one field of a spec that is otherwise empty, and checks what
// happens to it.
func play(t *testing.T, l leaf, want fate) {
	t.Helper()
	spec := &specs.Spec{Root: &specs.Root{}, Process: &specs.Process{}, Linux: &specs.Linux{}}
	if !strings.HasPrefix(l.path, "linux.namespaces") {
		spec.Linux.Namespaces = slices.Clone(ownNamespaces)
	}
	set(reflect.ValueOf(spec), l.way)
	switch l.path { // these mean something only with others
	case "linux.namespaces.type":
		spec.Linux.Namespaces = append(slices.Clone(ownNamespaces), specs.LinuxNamespace{Type: specs.UserNamespace})
	case "linux.namespaces.path":
		spec.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.PIDNamespace, Path: "/proc/7/ns/pid"}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}}
	}
	if l.path == "mounts.source" || strings.Contains(l.path, "Mappings.") && len(spec.Mounts) > 0 {
		spec.Mounts[0].Type = "bind"
	}
	before := get(reflect.ValueOf(spec), l.way)
	if before == "" {
		t.Fatal("the test has not set it")
	}
	g, err := Filter(spec, Paths{Binds: []Placed{{At: "/guest"}}, Devices: map[string]bool{"": true, "x": true}}, Rules{})
	if want == refused {
		field, _, _ := strings.Cut(strings.ReplaceAll(l.path, "listenerMetadata", "listenerPath"), ".name")
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v, want one that names %s", err, field)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var guests specs.Spec
	if err := json.Unmarshal(g.JSON, &guests); err != nil {
		t.Fatal(err)
	}
	after := get(reflect.ValueOf(&guests), l.way)
	if (after == before) != (want == guest) {
		t.Errorf("it was %s and is %q in the guest, want %s", before, after, want)
	}
	if (len(g.Dropped) > 0) != (want == logged) {
		t.Errorf("dropped %q, want %s", g.Dropped, want)
	}
}

// The page has the list.
func TestCompatPageListsFields(t *testing.T) {
	page, err := os.ReadFile("../../docs/compat.md")
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(string(page), "<!-- fields: begin -->\n")
	got, _, _ = strings.Cut(got, "<!-- fields: end -->")
	want := "| field | what becomes of it | |\n| --- | --- | --- |\n"
	for _, f := range fields {
		name := "`" + f.path + "`"
		if f.names != "" {
			name += ": " + strings.ReplaceAll(f.names, " ", ", ")
		}
		want += fmt.Sprintf("| %s | %s | %s |\n", name, f.fate, f.why)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
