package deb

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Runner runs a command in dir (empty: the current one) and returns its standard
// output. Its errors contain the command's standard error.
type Runner func(ctx context.Context, dir, name string, args ...string) ([]byte, error)

// Apt queries the host's apt. The zero value runs the real tools.
type Apt struct {
	// Run replaces how commands are run; nil runs them on this host.
	Run Runner
}

// Package is one version of a package, as apt describes it.
type Package struct {
	Name    string
	Version string
	// SHA256 is the lower-case hexadecimal digest of the .deb, Size its
	// length in bytes.
	SHA256 string
	Size   int64
}

// ErrUnknownPackage means that apt has no record of a package.
var ErrUnknownPackage = errors.New("apt knows no such package; its lists may be missing or old: run `apt-get update`, or give a package file with -deb")

// imageDependency matches the image that a kernel meta package depends on:
// "linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)".
var imageDependency = regexp.MustCompile(`^(linux-image-[0-9][^ :]*)(?::\S+)?(?: \(= ([^)]+)\))?`)

// partDependency matches the parts of an image package:
// "linux-modules-7.2.12+deb14-cloud-amd64 (= 7.2.12-1)". Debian 14's image packages
// have no files, and the kernel is in a part (binaryPrefix). Ubuntu's have the kernel
// themselves.
var partDependency = regexp.MustCompile(`^(linux-(?:base|binary|modules)-[0-9][^ :]*)(?::\S+)?(?: \(= ([^)]+)\))?`)

// binaryPrefix begins the name of the part with the kernel.
const binaryPrefix = "linux-binary-"

// maxMeta bounds how many meta packages Resolve follows.
const maxMeta = 3

// Resolve returns the packages that a kernel and its modules are in: the image package
// for name, which is name itself or the dependency of a meta package such as
// linux-image-cloud-amd64, unless it has no files, and its parts.
func (a Apt) Resolve(ctx context.Context, name string) ([]Package, error) {
	query := name
	for range maxMeta {
		record, err := a.show(ctx, query)
		if err != nil {
			return nil, err
		}
		next := dependencies(record["Depends"], imageDependency)
		if len(next) == 0 {
			return a.packagesOf(ctx, record)
		}
		query = next[0]
	}
	return nil, fmt.Errorf("resolve package %s: more than %d meta packages", name, maxMeta)
}

// packagesOf returns an image package, unless the kernel is in one of its parts, and
// these.
func (a Apt) packagesOf(ctx context.Context, image map[string]string) ([]Package, error) {
	parts := dependencies(image["Depends"], partDependency)
	var packages []Package
	if !slices.ContainsFunc(parts, func(query string) bool { return strings.HasPrefix(query, binaryPrefix) }) {
		p, err := packageOf(image)
		if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
	for _, query := range parts {
		record, err := a.show(ctx, query)
		if err != nil {
			return nil, err
		}
		p, err := packageOf(record)
		if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
	return packages, nil
}

// dependencies returns apt's queries for the dependencies that match of, whose groups
// are the name and the version.
func dependencies(depends string, of *regexp.Regexp) (queries []string) {
	for dep := range strings.SplitSeq(depends, ",") {
		m := of.FindStringSubmatch(strings.TrimSpace(dep))
		switch {
		case m == nil:
		case m[2] != "":
			queries = append(queries, m[1]+"="+m[2])
		default:
			queries = append(queries, m[1])
		}
	}
	return queries
}

// show returns the first record of `apt-cache show`, that of the candidate
// version.
func (a Apt) show(ctx context.Context, query string) (map[string]string, error) {
	out, err := a.run(ctx, "", "apt-cache", "show", "--no-all-versions", query)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("run apt-cache: not a Debian host? give a package file with -deb: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("show package %s: %w: %w", query, err, ErrUnknownPackage)
	}
	record := parseRecord(out)
	if record["Package"] == "" {
		return nil, fmt.Errorf("show package %s: %w", query, ErrUnknownPackage)
	}
	return record, nil
}

func packageOf(record map[string]string) (Package, error) {
	p := Package{Name: record["Package"], Version: record["Version"], SHA256: record["SHA256"]}
	var err error
	if p.Size, err = strconv.ParseInt(record["Size"], 10, 64); err != nil {
		return Package{}, fmt.Errorf("read size of package %s: %w", p.Name, err)
	}
	if len(p.SHA256) != 64 {
		return Package{}, fmt.Errorf("read package %s: apt gives no SHA-256", p.Name)
	}
	return p, nil
}

// parseRecord reads the first stanza of a control file; continuation lines
// are dropped.
func parseRecord(text []byte) map[string]string {
	record := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			break
		}
		key, value, ok := strings.Cut(line, ":")
		if ok && line[0] != ' ' && line[0] != '\t' {
			record[key] = strings.TrimSpace(value)
		}
	}
	return record
}

func (a Apt) run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	if a.Run != nil {
		return a.Run(ctx, dir, name, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && stderr.Len() > 0 {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return out, err
}
