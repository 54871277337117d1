// Package arch holds tests of the source's structure: which package may import
// which, that every package has a comment, and that no file grows too long to
// read. It contains only tests, needs neither root nor a VM, and states the
// import rules that .golangci.yml gives to the linter. ARCHITECTURE.md draws them.
package arch
