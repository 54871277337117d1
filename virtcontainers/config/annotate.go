package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// bound is an annotation with the key that it sets.
type bound struct {
	key key
	via annotation
}

// annotationsByName is every annotation that sets a key, by its full name.
var annotationsByName = func() map[string]bound {
	m := make(map[string]bound)
	for _, k := range keysByName {
		for _, a := range k.annotations {
			m[a.name] = bound{k, a}
		}
	}
	return m
}()

var bareByName = func() map[string]bare {
	m := make(map[string]bare)
	for _, b := range bareAnnotations {
		m[b.name] = b
	}
	return m
}()

// pod is the state of applying one pod's annotations.
type pod struct {
	draft draft
	// set is the annotation that has set each key.
	set     map[string]given
	errs    []error
	planned []string
}

// given is one annotation of a pod.
type given struct {
	// name is the name that the pod uses, canonical the current name.
	name, canonical, value string
}

// String returns the name in a form that fits into an error text.
func (g given) String() string {
	if printable(g.name) && len(g.name) <= 2*maxShown {
		return g.name
	}
	return show(g.name)
}

// Annotate returns the configuration of a pod whose sandbox container has those
// annotations; c is not changed. Annotations that are not Kata's are ignored.
// See docs/configuration.md for the rules.
//
// The error joins one for each annotation that is disabled, unknown, malformed
// or refused; it names the annotation, its value and what is wanted.
func (c *Config) Annotate(annotations map[string]string) (*Config, error) {
	p := pod{draft: c.draft(), set: make(map[string]given)}
	p.draft.Warnings = slices.Clone(c.Warnings)
	p.draft.Origins = maps.Clone(c.Origins)
	if p.draft.Origins == nil {
		p.draft.Origins = make(map[string]Origin)
	}
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if canonical, ours := canonicalName(name); ours {
			p.apply(c, given{name, canonical, annotations[name]})
		}
	}
	p.errs = append(p.errs, p.draft.checkTogether())
	p.checkCPUs()
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	if len(p.planned) > 0 {
		p.draft.warnf("annotations not implemented yet are ignored: %s", strings.Join(p.planned, ", "))
	}
	p.draft.resolve()
	p.draft.Plain = c
	return &p.draft.Config, nil
}

// Ours lists the names of the annotations that Annotate handles.
func Ours(annotations map[string]string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if canonical, ours := canonicalName(name); ours {
			names = append(names, given{name: name, canonical: canonical}.String())
		}
	}
	return names
}

// CheckContainer checks the annotations of another container of a pod. It
// ignores those that configure the sandbox, because engines repeat them there.
// The error and the warnings are as Annotate's.
func CheckContainer(annotations map[string]string) (warnings []string, err error) {
	var p pod
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		canonical, _ := canonicalName(name)
		if b := bareByName[canonical]; b.container {
			p.applyBare(b, given{name, canonical, annotations[name]})
		}
	}
	return p.draft.Warnings, errors.Join(p.errs...)
}

// canonicalName returns the current name of an annotation; ours is false if it
// is neither Kata's nor ours.
func canonicalName(name string) (canonical string, ours bool) {
	if suffix, ok := strings.CutPrefix(name, oldPrefix); ok {
		return annotationPrefix + suffix, true
	}
	suffix, ok := strings.CutPrefix(name, forkPrefix)
	if today, old := oldNames[suffix]; ok && old {
		return today, true
	}
	return name, ok || strings.HasPrefix(name, annotationPrefix)
}

// apply sets what one annotation says, or records why it cannot.
func (p *pod) apply(c *Config, g given) {
	a, sets := annotationsByName[g.canonical]
	b, known := bareByName[g.canonical]
	suffix, guarded := strings.CutPrefix(g.canonical, hypervisorPrefix)
	switch {
	case known && b.refused:
		p.applyBare(b, g)
	case sets && a.key.state == refused:
		p.fail(g, "is refused: "+a.key.doc)
	case !sets && !known && guarded:
		p.fail(g, "is unknown: want one of the annotations in docs/configuration.md")
	case guarded && !enabled(c.Annotations.Enabled, suffix):
		p.fail(g, fmt.Sprintf("is not enabled: want an expression in hypervisor.qemu.enable_annotations (%s) that matches all of %q",
			c.Origins[enableKey], suffix))
	case known:
		p.applyBare(b, g)
	case !sets:
		p.draft.warnf("unknown annotation %s is ignored", g)
	case a.key.state == planned:
		p.planned = append(p.planned, g.String())
	default:
		p.assign(c, a, g)
	}
}

// applyBare refuses or ignores an annotation that sets no key, or leaves it to
// the code that uses it.
func (p *pod) applyBare(b bare, g given) {
	switch {
	case b.refused:
		p.fail(g, "is refused: "+b.why)
	case !b.quiet && !b.taken:
		p.draft.warnf("annotation %s is ignored: %s", g, b.why)
	}
}

// assign sets a key by an annotation. For keys whose value may be empty or
// unset, an empty annotation changes nothing.
func (p *pod) assign(c *Config, a bound, g given) {
	if first, twice := p.set[a.key.name]; twice {
		if first.value != g.value {
			p.fail(g, fmt.Sprintf("contradicts annotation %s = %s: want one of them", first, show(first.value)))
		}
		return
	}
	p.set[a.key.name] = g
	v, ok := a.via.decode(g.value)
	if ok && a.key.isUnset(v) {
		return
	}
	if ok && a.via.allowed != nil && !matchesAny(a.via.allowed(c), g.value) {
		p.fail(g, fmt.Sprintf("is not allowed: want a path that matches a pattern in %s (%s)", a.via.allowedBy, c.Origins[a.via.allowedBy]))
		return
	}
	if err := a.via.judge(v, ok); err != nil {
		p.fail(g, "is not allowed: "+err.Error())
		return
	}
	if ok && a.via.adds {
		v = appended(a.key.get(&p.draft), v)
	}
	if !ok || !a.key.set(&p.draft, v) {
		p.fail(g, ": want "+cmp.Or(a.via.want, a.key.want))
		return
	}
	p.draft.Origins[a.key.name] = Origin{Annotation: g.name}
}

func (p *pod) fail(g given, what string) {
	if !strings.HasPrefix(what, ":") {
		what = " " + what
	}
	p.errs = append(p.errs, fmt.Errorf("annotation %s = %s%s", g, show(g.value), what))
}

// checkCPUs refuses more vCPUs than there can be. (In a file, too large a value
// is lowered with a warning: one file serves many hosts.)
func (p *pod) checkCPUs() {
	if g, ok := p.set["hypervisor.qemu.default_maxvcpus"]; ok && p.draft.maxVCPUs > p.draft.hostVCPUs() {
		p.fail(g, fmt.Sprintf(": want at most %d, the vCPUs that this host can give", p.draft.hostVCPUs()))
	}
	if g, ok := p.set["hypervisor.qemu.default_vcpus"]; ok && math.Ceil(p.draft.vcpus) > float64(p.draft.mostVCPUs()) {
		p.fail(g, fmt.Sprintf(": want at most %d, which default_maxvcpus and this host allow", p.draft.mostVCPUs()))
	}
}

// enabled reports whether one of the expressions matches all of the name. (Kata
// Containers matches a part of the name, so "kernel" also enables
// kernel_params, and "path" every annotation with "path" in its name: more than
// what is written.)
func enabled(expressions []string, name string) bool {
	return slices.ContainsFunc(expressions, func(e string) bool {
		matched, err := regexp.MatchString("^(?:"+e+")$", name)
		return err == nil && matched
	})
}

// searched reports whether the expression matches any part of the name.
func searched(expression, name string) bool {
	matched, err := regexp.MatchString(expression, name)
	return err == nil && matched
}

// appended joins the configuration's text or list with the pod's.
func appended(before, more any) any {
	if list, ok := before.([]any); ok {
		extra, _ := more.([]any)
		return slices.Concat(list, extra)
	}
	text, _ := more.(string)
	return strings.TrimSpace(fmt.Sprintf("%v %s", before, text))
}
