package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// hugepagesDir has a directory for each size of huge pages, named
// "hugepages-<size>kB" (Documentation/admin-guide/mm/hugetlbpage.rst).
const hugepagesDir = "kernel/mm/hugepages"

// hugepages is a number of huge pages of one size.
type hugepages struct {
	pageKiB, pages uint64
}

// mountHugepages mounts memory in huge pages. By default the kernel reserves
// none; if the storage has a size, that many are reserved from the guest's
// memory.
func (m *Mounter) mountHugepages(_ context.Context, s *api.Storage) error {
	flags, data := parseMountOptions(s.GetOptions())
	wanted, data, err := parseHugepages(data)
	if err != nil {
		return err
	}
	if wanted.pages > 0 {
		err = m.reserve(s.GetTarget(), wanted)
	}
	if err != nil {
		return err
	}
	err = m.mount(request{"hugetlbfs", s.GetTarget(), "hugetlbfs", flags, data})
	if err != nil {
		err = errors.Join(err, m.unreserve(s.GetTarget()))
	}
	return err
}

// parseHugepages reads the options "pagesize=", which is required, and "size=",
// and returns the options with those two in bytes.
func parseHugepages(data string) (hugepages, string, error) {
	var page, size uint64
	var rest []string
	for word := range strings.SplitSeq(data, ",") {
		if word == "" {
			continue
		}
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "pagesize":
			page, err = parseBytes(value)
		case "size":
			size, err = parseBytes(value)
		default:
			rest = append(rest, word)
		}
		if err != nil {
			return hugepages{}, "", fmt.Errorf("option %s: %w", key, err)
		}
	}
	if page == 0 || page%1024 != 0 {
		return hugepages{}, "", fmt.Errorf("options %.200q: want pagesize= in whole KiB: %w", data, errdefs.ErrInvalidArgument)
	}
	wanted := hugepages{pageKiB: page / 1024}
	rest = append(rest, fmt.Sprintf("pagesize=%d", page))
	if size > 0 {
		wanted.pages = (size-1)/page + 1
		rest = append(rest, fmt.Sprintf("size=%d", size))
	}
	return wanted, strings.Join(rest, ","), nil
}

// byteSize matches a number of bytes with the kernel's suffixes (lib/cmdline.c,
// memparse) or those of Kubernetes' quantities, which end with "i".
var byteSize = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([0-9]{1,18})(?:([kKmMgGtT])i?)?$`)
})

func parseBytes(text string) (uint64, error) {
	parts := byteSize().FindStringSubmatch(text)
	if parts == nil {
		return 0, fmt.Errorf("%.40q is not a number of bytes such as \"2M\": %w", text, errdefs.ErrInvalidArgument)
	}
	n, _ := strconv.ParseUint(parts[1], 10, 64) // The pattern allows only digits, few enough for it.
	shift := 10 * (1 + strings.Index("kmgt", strings.ToLower(parts[2])))
	if parts[2] == "" {
		shift = 0
	}
	if n<<shift>>shift != n || n<<shift > 1<<62 {
		return 0, fmt.Errorf("%.40q is too much: %w", text, errdefs.ErrInvalidArgument)
	}
	return n << shift, nil
}

// reserve makes the kernel reserve huge pages for a target, in addition to
// existing ones. On an error nothing has changed.
func (m *Mounter) reserve(target string, wanted hugepages) error {
	m.hugepagesMu.Lock()
	defer m.hugepagesMu.Unlock()
	if _, ok := m.hugepages[target]; ok {
		return fmt.Errorf("target has huge pages: %w", errdefs.ErrAlreadyExists)
	}
	had, err := m.readPages(wanted.pageKiB)
	if err != nil {
		return err
	}
	if err := m.checkMemory(wanted); err != nil {
		return err
	}
	has, err := m.writePages(wanted.pageKiB, had+wanted.pages)
	if err == nil && has < had+wanted.pages {
		// The kernel reserves as many as it can, without an error
		// (mm/hugetlb.c, set_max_huge_pages).
		err = tooLittle(wanted, has-min(had, has))
	}
	if err != nil {
		_, undo := m.writePages(wanted.pageKiB, had)
		return errors.Join(err, undo)
	}
	m.hugepages[target] = wanted
	return nil
}

func tooLittle(wanted hugepages, have uint64) error {
	return fmt.Errorf("the guest has memory for %d huge pages of %d KiB, want %d: give the machine more memory: %w",
		have, wanted.pageKiB, wanted.pages, errdefs.ErrResourceExhausted)
}

// checkMemory refuses more than the guest has left: otherwise the kernel would take
// all free memory before it fails.
func (m *Mounter) checkMemory(wanted hugepages) error {
	text, err := os.ReadFile(filepath.Join(m.proc, "meminfo"))
	if err != nil {
		return fmt.Errorf("read memory size: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var free uint64
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &free); err == nil && free/wanted.pageKiB < wanted.pages {
			return tooLittle(wanted, free/wanted.pageKiB)
		}
	}
	return nil
}

// unreserve releases a target's huge pages, if it has any.
func (m *Mounter) unreserve(target string) error {
	m.hugepagesMu.Lock()
	defer m.hugepagesMu.Unlock()
	wanted, ok := m.hugepages[target]
	if !ok {
		return nil
	}
	had, err := m.readPages(wanted.pageKiB)
	if err != nil {
		return err
	}
	if _, err := m.writePages(wanted.pageKiB, had-min(had, wanted.pages)); err != nil {
		return err
	}
	delete(m.hugepages, target)
	return nil
}

func (m *Mounter) pagesFile(pageKiB uint64) string {
	return filepath.Join(m.sys, hugepagesDir, fmt.Sprintf("hugepages-%dkB", pageKiB), "nr_hugepages")
}

func (m *Mounter) readPages(pageKiB uint64) (uint64, error) {
	text, err := os.ReadFile(m.pagesFile(pageKiB))
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("the guest has no huge pages of %d KiB, but %s: %w", pageKiB, m.pageSizes(), errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return 0, fmt.Errorf("read number of huge pages: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read number of huge pages: %w", err)
	}
	return n, nil
}

// writePages makes the kernel reserve that many huge pages in total, and
// returns how many it has reserved.
func (m *Mounter) writePages(pageKiB, pages uint64) (uint64, error) {
	if err := m.kernel.write(m.pagesFile(pageKiB), strconv.FormatUint(pages, 10)); err != nil {
		return 0, fmt.Errorf("set number of huge pages: %w", err)
	}
	return m.readPages(pageKiB)
}

// pageSizes describes the sizes of huge pages that the kernel supports.
func (m *Mounter) pageSizes() string {
	dirs, err := filepath.Glob(filepath.Join(m.sys, hugepagesDir, "hugepages-*"))
	if err != nil || len(dirs) == 0 {
		return "none at all"
	}
	for i, dir := range dirs {
		dirs[i] = strings.TrimPrefix(filepath.Base(dir), "hugepages-")
	}
	return strings.Join(dirs, ", ")
}
