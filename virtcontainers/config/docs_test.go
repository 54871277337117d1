package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// docsFile is written from the tables of keys and annotations:
// go test ./virtcontainers/config -update
const docsFile = "../../docs/configuration.md"

func TestDocsAreWrittenFromTheTable(t *testing.T) {
	golden(t, docsFile, renderDocs())
}

const docsHead = `# Configuration: files, keys, annotations

<!-- Written by "go test ./virtcontainers/config -update"; a test fails when it is stale. -->

## Which file

The file is read when a pod is made, so a change applies to the next pod. The first of these files that exists is used:

1. the file that the engine names (containerd's ` + "`ConfigPath`" + ` option, ` + "`ctr run --runtime-config-path`" + `);
2. ` + "`$KATA_CONF_FILE`" + ` in the engine's environment;
3. ` + "`/etc/kata-containers/configuration.toml`" + `;
4. ` + "`share/defaults/kata-containers/configuration.toml`" + ` beside the shim's directory, as in ` + "`/opt/kata`" + `;
5. ` + "`/usr/share/defaults/kata-containers/configuration.toml`" + `.

A file that is named (1, 2) must exist, and so must the target of a symbolic link. Without any file the defaults below apply.

## Drop-ins

The files ` + "`config.d/*.toml`" + ` beside the file are merged over it, key by key, in the order of their names: if several have the same key,
the last one counts. To change one key, put it into a file there:

` + "```toml" + `
# config.d/50-memory.toml, beside the configuration file
[hypervisor.qemu]
default_memory = 4096
` + "```" + `

Files whose names begin with a dot are not read. If the configuration file is a symbolic link, its drop-ins are beside the target. Drop-ins
beside the link, or beside a place earlier in the list above that has no file, are ignored with a warning.

## Wrong values

A wrong value is an error that names the file, the line, the key, the value and what is wanted. All wrong values are reported together.
` + "`kata-runtime env`" + ` prints the values in force and where each comes from.

An empty string means the default, and so does 0 where it makes no sense, except for the memory of a sandbox.

## States of a key

| state | in a file | as an annotation |
| --- | --- | --- |
| effective | has the effect that the table describes | the same |
| planned | has no effect yet; one warning lists those that differ from the default below | the same; a warning lists them |
| refused | is ignored with a warning that gives the reason; is an error if the table says "refused, an error" | is an error |

The defaults of planned and refused keys are those of Kata Containers. A key that is in no table below is ignored with a warning, and so
are the tables of other hypervisors.

## Annotations

A pod sets a key by an annotation of its sandbox. On its other containers only the annotations that are marked below are read. (A
container outside any pod is its own sandbox.) containerd passes annotations on if the runtime's table has

` + "```toml" + `
pod_annotations = ["io.katacontainers.*"]
container_annotations = ["io.katacontainers.container.*"]
` + "```" + `

iSulad passes on whatever ` + "`isula run --annotation`" + ` is given. With containerd's ` + "`sandboxer = \"shim\"`" + ` there is no such choice: a pod's
annotations are ignored with a warning.

**Which annotations are allowed**

- ` + "`io.katacontainers.config.hypervisor.NAME`" + ` is allowed only if a regular expression in ` + "`enable_annotations`" + ` matches the whole NAME:
  ` + "`kernel`" + ` does not enable ` + "`kernel_params`" + `, but ` + "`kernel.*`" + ` does. (In Kata Containers a match of a part is enough. An expression that
  matches only parts of names causes a warning that says what to write.)
- ` + "`config.runtime.`" + `, ` + "`config.agent.`" + ` and ` + "`com.github.containers.virtcontainers.`" + ` are always allowed.

**Which values are allowed**

- A value is checked like a value in a file. Booleans are ` + "`true`, `false`, `1`, `0`" + `; lists are written as the table says.
- A path on the host must match a pattern in its list (` + "`valid_*`" + `, which the tables name), and must be absolute and without ` + "`.`, `..`" + ` or
  double slashes.
- A value that becomes part of a command line is parsed, and only what is listed under [options that pods may set](#options-that-pods-may-set)
  is accepted. Values from the file are passed on unchanged.
- ` + "`kernel_params` and `virtio_fs_extra_args`" + ` are appended to the configuration's values. All others replace them.
- Asking for more vCPUs than the pod can have is an error. (In a file, the number is reduced to what the host has.)
- Two annotations for one key must agree.

**Errors.** An annotation that is not enabled, malformed, refused, or unknown below ` + "`config.hypervisor.`" + ` fails the pod's creation. The error
names the annotation, its value and what is wanted. Other unknown names below ` + "`io.katacontainers.`" + ` are ignored with a warning.
`

// tableNames is the tables in the order in which they are shown.
var tableNames = []string{"hypervisor.qemu", "agent.kata", "runtime", "factory"}

// renderDocs writes docs/configuration.md.
func renderDocs() string {
	var b strings.Builder
	b.WriteString(docsHead)
	all := slices.Concat(keys, withoutEffect)
	slices.SortStableFunc(all, func(a, b key) int { return cmp.Compare(a.state, b.state) }) // also alphabetically
	for _, table := range tableNames {
		fmt.Fprintf(&b, "\n## [%s]\n\n", table)
		b.WriteString("| key | default | values | state | what it does | annotation |\n| --- | --- | --- | --- | --- | --- |\n")
		for _, k := range all {
			if in, name := split(k); in == table {
				fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", name, tomlValue(k.def), valuesText(k), stateText(k), docText(k), annotationText(k))
			}
		}
	}
	b.WriteString("\nAnnotations above are shortened by `io.katacontainers.`; names that begin with `sandbox_` are openEuler's, " +
		"`com.github.containers.virtcontainers.`.\n")
	writeOptions(&b)
	writeBare(&b)
	writeOld(&b)
	return b.String()
}

func stateText(k key) string {
	if k.unsafe {
		return "refused, an error"
	}
	return string(k.state)
}

// valuesText says what a value may be, in fewer words than an error.
func valuesText(k key) string {
	if k.want == text.want {
		return "text"
	}
	return k.want
}

// docText makes a sentence of a refused key's reason.
func docText(k key) string {
	if k.state == refused {
		return strings.ToUpper(k.doc[:1]) + k.doc[1:] + "."
	}
	return k.doc
}

func annotationText(k key) string {
	var all []string
	for _, a := range k.annotations {
		text := "`" + strings.TrimPrefix(strings.TrimPrefix(a.name, annotationPrefix), forkPrefix) + "`"
		switch {
		case a.want != "" && a.adds:
			text += ": " + a.want + "; appended"
		case a.want != "":
			text += ": " + a.want
		case a.adds:
			text += ": appended"
		}
		if a.allowedBy != "" {
			_, list := split(keysByName[a.allowedBy])
			text += ": one of `" + list + "`"
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// writeOptions writes what pods may set of command lines.
func writeOptions(b *strings.Builder) {
	var daemon []string
	for _, name := range slices.Sorted(maps.Keys(daemonOptions)) {
		if daemonOptions[name] != nil {
			name += "=VALUE"
		}
		daemon = append(daemon, name)
	}
	fmt.Fprintf(b, "\n## Options that pods may set\n\n| annotation | options |\n| --- | --- |\n")
	fmt.Fprintf(b, "| `machine_accelerators` | name=value, the name one of `%s`; no value has a slash |\n", strings.Join(machineOptions, "`, `"))
	fmt.Fprintf(b, "| `cpu_features` | name=value, +name, -name; no value has a slash |\n")
	fmt.Fprintf(b, "| `virtio_fs_extra_args` | `--NAME`, or `-o` and a list, of `%s`; with dashes or with underscores, as the daemon has them |\n",
		strings.Join(daemon, "`, `"))
	fmt.Fprintf(b, "| `kernel_params` | anything: it is the guest's kernel's |\n")
}

// writeBare writes the annotations that belong to no key.
func writeBare(b *strings.Builder) {
	b.WriteString("\n## Annotations without a key\n\n| annotation | what becomes of it | why |\n| --- | --- | --- |\n")
	for _, a := range bareAnnotations {
		becomes := "ignored with a warning"
		if a.refused {
			becomes = "refused: an error"
		} else if a.taken {
			becomes = "taken"
		} else if a.quiet {
			becomes = "ignored"
		}
		if a.container {
			becomes += "; on every container"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", a.name, becomes, a.why)
	}
}

// writeOld writes the old names.
func writeOld(b *strings.Builder) {
	b.WriteString("\n## Old names of annotations\n\n" +
		"They mean the same as today's names and follow the same rules. `io.kata-containers.` (1.9) is read as\n" +
		"`io.katacontainers.`. Up to 1.8, `com.github.containers.virtcontainers.` was followed by:\n\n| old | today |\n| --- | --- |\n")
	for _, old := range slices.Sorted(maps.Keys(oldNames)) {
		fmt.Fprintf(b, "| `%s` | `%s` |\n", old, oldNames[old])
	}
}
