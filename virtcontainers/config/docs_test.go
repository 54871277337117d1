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

The file is read when a pod is made, so a change holds for the next pod. The first of these is taken:

1. the file that the engine names (containerd's ` + "`ConfigPath`" + ` option, ` + "`ctr run --runtime-config-path`" + `);
2. ` + "`$KATA_CONF_FILE`" + ` in the engine's environment;
3. ` + "`/etc/kata-containers/configuration.toml`" + `;
4. ` + "`share/defaults/kata-containers/configuration.toml`" + ` beside the shim's directory, as in ` + "`/opt/kata`" + `;
5. ` + "`/usr/share/defaults/kata-containers/configuration.toml`" + `.

A file that is named (1, 2) must be there, and so must be the target of a link. Without any, all defaults below hold. The ` + "`*.toml`" + ` files of the directory
` + "`config.d`" + ` beside the file are merged over it, key by key, in the order of their names: the last that has a key gives its
value. If the file is a symbolic link, the directory is the one beside its target. Drop-ins beside the link, or beside a
place earlier in this list that has no file, are ignored with a warning. To change one key, put it into a file
there:

` + "```toml" + `
# config.d/50-memory.toml, beside the configuration file
[hypervisor.qemu]
default_memory = 4096
` + "```" + `

A wrong value is an error that names file, line, key, value and what is wanted; all of them are reported together.
` + "`kata-runtime env`" + ` prints what is in force and where each value comes from.

## What becomes of a key

| state | in a file | as an annotation |
| --- | --- | --- |
| effective | does what it says | the same |
| planned | nothing yet; one warning lists those that are not at the default below | the same, a warning lists them |
| refused | ignored with a warning that says why; an error where this is written | an error |

The defaults of planned and refused keys are Kata Containers'. A key that is in no table is ignored with a warning, and so
are the tables of other hypervisors. An empty string, and 0 where it makes no sense, mean the default.

## Annotations

A pod sets a key by an annotation of its sandbox; on its other containers only those that are marked below are looked at. (A
container outside any pod is its own sandbox.) containerd passes annotations on when the runtime's table has

` + "```toml" + `
pod_annotations = ["io.katacontainers.*"]
container_annotations = ["io.katacontainers.container.*"]
` + "```" + `

and iSulad all that ` + "`isula run --annotation`" + ` gets. With containerd's ` + "`sandboxer = \"shim\"`" + ` there is no such choice: a pod's
annotations are ignored with a warning. The rules:

- ` + "`io.katacontainers.config.hypervisor.NAME`" + ` counts only if an expression in ` + "`enable_annotations`" + ` matches all of NAME:
  ` + "`kernel`" + ` does not enable ` + "`kernel_params`" + `, ` + "`kernel.*`" + ` does. (Kata Containers is content with a part. An expression that matches
  parts only is a warning that says what to write.)
- ` + "`config.runtime.`" + `, ` + "`config.agent.`" + ` and ` + "`com.github.containers.virtcontainers.`" + ` need not be enabled.
- A path on the host must match a pattern in its list (` + "`valid_*`" + `, beside each below), be absolute and without ` + "`.`, `..`" + ` or double
  slashes.
- What becomes a part of a command line is parsed, and only what is listed under [options that pods may set](#options-that-pods-may-set)
  is taken. The file's own values are passed as they are.
- The value goes through the same checks as in a file. Booleans are ` + "`true`, `false`, `1`, `0`" + `; lists are written as the table
  says; ` + "`kernel_params` and `virtio_fs_extra_args`" + ` are appended to the configuration's, all else replaces it.
- A pod that asks for more vCPUs than there can be is an error. (In a file, the number is cut to what the host has.)
- An annotation that is not enabled, unknown below ` + "`config.hypervisor.`" + `, malformed or refused fails the pod's creation. The error
  names the annotation, its value and what is wanted. Other unknown names below ` + "`io.katacontainers.`" + ` are ignored with a warning.
- Two annotations for one key must agree.
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
		"They mean what today's names mean and follow the same rules. `io.kata-containers.` (1.9) is read as\n" +
		"`io.katacontainers.`. Up to 1.8, `com.github.containers.virtcontainers.` was followed by:\n\n| old | today |\n| --- | --- |\n")
	for _, old := range slices.Sorted(maps.Keys(oldNames)) {
		fmt.Fprintf(b, "| `%s` | `%s` |\n", old, oldNames[old])
	}
}
