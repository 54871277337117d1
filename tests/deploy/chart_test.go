package deploy

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write deploy/kubernetes anew from the chart")

const (
	chartDir    = "../../deploy/helm/katabox"
	manifestDir = "../../deploy/kubernetes"
	// generated is the first line of each plain manifest.
	generated = "# From the templates of deploy/helm/katabox: go test ./tests/deploy -update\n"
)

// object is a decoded YAML manifest.
type object = map[string]any

// parse reads the documents of a file.
func parse(t *testing.T, text string) []object {
	t.Helper()
	var objects []object
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o object
		if err := decoder.Decode(&o); err != nil {
			if err.Error() == "EOF" {
				return objects
			}
			t.Fatalf("%v in:\n%s", err, text)
		}
		if o != nil {
			objects = append(objects, o)
		}
	}
}

func readYAML(t *testing.T, name string) object {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(chartDir, name))
	if err != nil {
		t.Fatal(err)
	}
	objects := parse(t, string(data))
	if len(objects) != 1 {
		t.Fatalf("%s has %d documents", name, len(objects))
	}
	return objects[0]
}

// helmFunctions are the Helm functions that the chart uses; a template with
// another one does not parse here.
var helmFunctions = template.FuncMap{
	"default": func(unset, value any) any {
		if value == nil || value == "" {
			return unset
		}
		return value
	},
	"toYaml": func(value any) (string, error) {
		var text bytes.Buffer
		encoder := yaml.NewEncoder(&text)
		encoder.SetIndent(2)
		err := encoder.Encode(value)
		return strings.TrimSuffix(text.String(), "\n"), err
	},
	"nindent": func(width int, text string) string {
		indent := "\n" + strings.Repeat(" ", width)
		return indent + strings.ReplaceAll(text, "\n", indent)
	},
}

// render does what "helm template" does with the chart, and returns the text of each
// template by its name. change, if not nil, sets values.
func render(t *testing.T, change func(values object)) map[string]string {
	t.Helper()
	chart, values := readYAML(t, "Chart.yaml"), readYAML(t, "values.yaml")
	if change != nil {
		change(values)
	}
	data := object{
		"Values": values, "Release": object{"Namespace": "kube-system"},
		"Chart": object{"AppVersion": chart["appVersion"]},
	}
	files, err := filepath.Glob(filepath.Join(chartDir, "templates", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the chart's templates: %v, %v", files, err)
	}
	rendered := map[string]string{}
	for _, file := range files {
		text, err := template.New(filepath.Base(file)).Option("missingkey=error").Funcs(helmFunctions).ParseFiles(file)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := text.Execute(&out, data); err != nil {
			t.Fatal(err)
		}
		rendered[filepath.Base(file)] = strings.TrimLeft(out.String(), "\n")
	}
	return rendered
}

// The plain manifests are the chart rendered with its default values.
func TestManifestsAreTheCharts(t *testing.T) {
	want := render(t, nil)
	want["uninstaller.yaml"] = render(t, func(values object) { values["uninstall"] = true })["installer.yaml"]
	entries, err := os.ReadDir(manifestDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := want[e.Name()]; !ok {
			t.Errorf("%s is not the chart's", e.Name())
		}
	}
	for name, text := range want {
		path := filepath.Join(manifestDir, name)
		if *update {
			if err := os.WriteFile(path, []byte(generated+text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(generated+text, string(got)); diff != "" {
			t.Errorf("%s: run go test ./tests/deploy -update (-want +got):\n%s", name, diff)
		}
	}
}

// at returns what is at a path of keys and indexes, or nil.
func at(value any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			table, _ := value.(map[string]any)
			value = table[step]
		case int:
			list, _ := value.([]any)
			if step >= len(list) {
				return nil
			}
			value = list[step]
		}
	}
	return value
}

// find returns the only object of a kind.
func find(t *testing.T, rendered map[string]string, kind string) object {
	t.Helper()
	var found []object
	for _, text := range rendered {
		for _, o := range parse(t, text) {
			if o["kind"] == kind {
				found = append(found, o)
			}
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of kind %s", len(found), kind)
	}
	return found[0]
}

// The parts refer to each other by the right names.
func TestPartsFit(t *testing.T) {
	rendered := render(t, nil)
	class, installer := find(t, rendered, "RuntimeClass"), find(t, rendered, "DaemonSet")
	pod := at(installer, "spec", "template", "spec")
	same := map[string][2]any{
		"the handler":     {"--handler=" + fmt.Sprint(class["handler"]), at(pod, "initContainers", 0, "args", 2)},
		"the node's root": {at(pod, "volumes", 0, "name"), at(pod, "initContainers", 0, "volumeMounts", 0, "name")},
		"where it is":     {"--host-root=" + fmt.Sprint(at(pod, "initContainers", 0, "volumeMounts", 0, "mountPath")), at(pod, "initContainers", 0, "args", 1)},
		"the pods":        {at(pod, "containers", 0, "image"), at(pod, "initContainers", 0, "image")},
		"the account":     {at(find(t, rendered, "ServiceAccount"), "metadata", "name"), at(pod, "serviceAccountName")},
		"the role":        {at(find(t, rendered, "ClusterRole"), "metadata", "name"), at(find(t, rendered, "ClusterRoleBinding"), "roleRef", "name")},
		"the subject":     {at(pod, "serviceAccountName"), at(find(t, rendered, "ClusterRoleBinding"), "subjects", 0, "name")},
		"the policy":      {at(find(t, rendered, "ValidatingAdmissionPolicy"), "metadata", "name"), at(find(t, rendered, "ValidatingAdmissionPolicyBinding"), "spec", "policyName")},
		"the token":       {at(pod, "volumes", 1, "name"), at(pod, "initContainers", 0, "volumeMounts", 1, "name")},
		"its place":       {"/var/run/secrets/kubernetes.io/serviceaccount", at(pod, "initContainers", 0, "volumeMounts", 1, "mountPath")},
		"its absence":     {false, at(pod, "automountServiceAccountToken")},
		"the selector":    {at(installer, "spec", "template", "metadata", "labels", "app.kubernetes.io/name"), at(installer, "spec", "selector", "matchLabels", "app.kubernetes.io/name")},
		"the label":       {"true", at(class, "scheduling", "nodeSelector", "katacontainers.io/kata-runtime")},
	}
	for what, pair := range same {
		if pair[0] != pair[1] || pair[0] == nil {
			t.Errorf("%s: %v and %v", what, pair[0], pair[1])
		}
	}
}

// The monitor may read the node's pods where SELinux is on, and is ready only if it can.
func TestMonitorIsReadyIfItCanRead(t *testing.T) {
	monitor := at(find(t, render(t, func(values object) { values["monitor"] = object{"listen": "0.0.0.0:1"} }), "DaemonSet"),
		"spec", "template", "spec", "containers", 0)
	if got := at(monitor, "securityContext", "seLinuxOptions", "type"); got != "spc_t" {
		t.Errorf("its SELinux type is %v", got)
	}
	command, _ := at(monitor, "readinessProbe", "exec", "command").([]any)
	arguments, _ := at(monitor, "args").([]any)
	if len(command) == 0 || command[0] != "/opt/kata/bin/kata-runtime" { // the image's entry point
		t.Fatalf("the probe is %v", command)
	}
	rest := slices.DeleteFunc(slices.Clone(command[1:]), func(arg any) bool { return arg == "--ready" })
	if len(rest) != len(command)-2 || !slices.Equal(rest, arguments) {
		t.Errorf("the probe is %v, the monitor's arguments are %v", command, arguments)
	}
}

// To end spares takes the node's PIDs, which nothing else needs.
func TestOnlyUninstallHasThePIDs(t *testing.T) {
	for uninstall, want := range map[bool]any{false: nil, true: true} {
		pod := at(find(t, render(t, func(values object) { values["uninstall"] = uninstall }), "DaemonSet"), "spec", "template", "spec")
		if got := at(pod, "hostPID"); got != want {
			t.Errorf("uninstall %t: hostPID %v, want %v", uninstall, got, want)
		}
	}
}

func TestValues(t *testing.T) {
	rendered := render(t, func(values object) {
		values["handler"] = "vm"
		values["engine"] = "crio"
		values["admissionPolicy"] = false
		values["imagePullSecrets"] = []any{object{"name": "key"}}
		values["image"] = object{"repository": "r.example/i", "tag": "2", "pullPolicy": "Always"}
	})
	if text := rendered["admission.yaml"]; strings.TrimSpace(text) != "" {
		t.Errorf("a policy that is switched off: %s", text)
	}
	pod := at(find(t, rendered, "DaemonSet"), "spec", "template", "spec")
	if got := at(pod, "imagePullSecrets", 0, "name"); got != "key" {
		t.Errorf("pull secret %v", got)
	}
	if got := at(pod, "initContainers", 0, "image"); got != "r.example/i:2" {
		t.Errorf("image %v", got)
	}
	if args, _ := at(pod, "initContainers", 0, "args").([]any); !slices.Contains(args, any("--handler=vm")) || !slices.Contains(args, any("--engine=crio")) {
		t.Errorf("arguments %v", args)
	}
	if class := find(t, rendered, "RuntimeClass"); class["handler"] != "vm" || at(class, "metadata", "name") != "vm" {
		t.Errorf("class %v", class)
	}
}

// "helm upgrade --reuse-values" brings no value that the chart did not have before.
// uninstall takes no engine.
func TestEngineArgument(t *testing.T) {
	for _, uninstall := range []bool{false, true} {
		pod := at(find(t, render(t, func(values object) {
			values["engine"] = nil // as for Helm a missing one
			values["uninstall"] = uninstall
		}), "DaemonSet"), "spec", "template", "spec")
		args, _ := at(pod, "initContainers", 0, "args").([]any)
		if given := strings.Contains(fmt.Sprint(args...), "--engine"); given == uninstall || given && !slices.Contains(args, any("--engine=auto")) {
			t.Errorf("uninstall %t: arguments %v", uninstall, args)
		}
	}
}

// One node that is not ready does not hold up a large cluster. A percentage is rounded
// up, so that it is one node at least.
func TestNodesAtOnce(t *testing.T) {
	for _, test := range []struct{ value, want any }{{"10%", "10%"}, {nil, "10%"}, {3, 3}} {
		daemons := find(t, render(t, func(values object) { values["maxUnavailable"] = test.value }), "DaemonSet")
		if got := at(daemons, "spec", "updateStrategy", "rollingUpdate", "maxUnavailable"); got != test.want {
			t.Errorf("maxUnavailable %v, want %v", got, test.want)
		}
	}
	if got := readYAML(t, "values.yaml")["maxUnavailable"]; got != "10%" {
		t.Errorf("the chart's value is %v", got)
	}
}

// The chart's version must equal the tree's; otherwise a build would be
// installed as another version.
func TestChartVersion(t *testing.T) {
	version, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	chart := readYAML(t, "Chart.yaml")
	if want := strings.TrimSpace(string(version)); chart["version"] != want || chart["appVersion"] != want {
		t.Errorf("Chart.yaml has %v and %v, VERSION %s", chart["version"], chart["appVersion"], want)
	}
}
