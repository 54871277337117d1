// Package elftest makes small ELF files for this program's tests: kernels
// with segments, modules with sections.
package elftest
