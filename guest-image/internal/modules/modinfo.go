package modules

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// maxModinfo bounds a module's .modinfo section, in bytes. A distribution's
// largest have some tens of KiB, most of it aliases.
const maxModinfo = 4 << 20

// Info is the content of a module's .modinfo.
type Info struct {
	// Name is the module's name in /proc/modules.
	Name string
	// Depends are the names of the modules whose symbols it uses.
	Depends []string
	// SoftPre are names or aliases that should be loaded first if they exist.
	SoftPre []string
	// Aliases are further names of the module. They may have wildcards.
	Aliases []string
}

// ReadInfo reads the .modinfo section of a module (not compressed).
func ReadInfo(ko []byte) (Info, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return Info{}, fmt.Errorf("read module ELF: %w", err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil || section.Type == elf.SHT_NOBITS {
		return Info{}, errors.New("read module ELF: no .modinfo section")
	}
	if section.Size > maxModinfo {
		return Info{}, fmt.Errorf("read .modinfo: %d bytes are too many", section.Size)
	}
	data, err := section.Data()
	if err != nil {
		return Info{}, fmt.Errorf("read .modinfo: %w", err)
	}
	info := parseInfo(data)
	if info.Name == "" {
		return Info{}, errors.New("read .modinfo: no name")
	}
	for _, name := range append([]string{info.Name}, info.Depends...) {
		if !validName.MatchString(name) {
			return Info{}, fmt.Errorf("read .modinfo: %.64q is not a module name", name)
		}
	}
	return info, nil
}

// validName matches a module's name: the build derives names from those of C
// files (scripts/Makefile.lib, name-fix), and the image's list of modules
// separates words by blanks.
var validName = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

// parseInfo reads "key=value" strings, each ended by a NUL byte
// (include/linux/moduleparam.h).
func parseInfo(data []byte) Info {
	var info Info
	for entry := range bytes.SplitSeq(data, []byte{0}) {
		key, value, _ := strings.Cut(string(entry), "=")
		switch key {
		case "name":
			info.Name = normal(value)
		case "depends":
			for dep := range strings.SplitSeq(value, ",") {
				if dep != "" {
					info.Depends = append(info.Depends, normal(dep))
				}
			}
		case "softdep":
			info.SoftPre = append(info.SoftPre, softPre(value)...)
		case "alias":
			info.Aliases = append(info.Aliases, value)
		}
	}
	return info
}

// softPre returns the names after "pre:" in a softdep (modprobe.d(5)).
func softPre(value string) []string {
	var names []string
	pre := false
	for word := range strings.FieldsSeq(value) {
		switch {
		case word == "pre:":
			pre = true
		case word == "post:":
			pre = false
		case pre:
			names = append(names, word)
		}
	}
	return names
}

// normal returns a module's name in the kernel's form: file names may have
// dashes, names never do.
func normal(name string) string { return strings.ReplaceAll(name, "-", "_") }
