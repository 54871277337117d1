package tracing

import (
	"maps"
	"strings"
	"time"

	"github.com/katabox/katabox/virtcontainers/timeline"
)

// composer turns calls and timelines into spans. A container's part of the
// timeline is sent once, when it has started; the pod's as soon as there is one.
type composer struct {
	sandbox string
	// root is the span of the whole sandbox, unknown before the first call, and
	// rootParent the engine's span around it, or empty.
	root       spanContext
	rootParent string
	// due has the containers whose part is to be sent, and the pod, which is "";
	// sent those that were.
	due, sent map[string]bool
	// held has the calls that may enclose a container's spans, by container.
	held map[string][]heldCall
}

type heldCall struct {
	call
	at spanContext
}

func newComposer(sandbox string) *composer {
	return &composer{sandbox: sandbox, due: map[string]bool{"": true}, sent: make(map[string]bool), held: make(map[string][]heldCall)}
}

// add returns the span of a call, or none.
func (c *composer) add(one call) []Span {
	at, parent := c.place(one.parent)
	c.hold(heldCall{one, at})
	if at.dropped {
		return nil
	}
	s := Span{
		Trace: at.trace, ID: at.span, Parent: parent, Name: one.name(), Server: true, Start: one.start, End: one.end,
		Attributes: map[string]string{"rpc.system": "ttrpc"},
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(one.method, "/"), "/")
	for key, value := range map[string]string{
		"rpc.service": service, "rpc.method": method, "container.id": one.container, "katabox.exec.id": one.exec,
	} {
		if value != "" {
			s.Attributes[key] = value
		}
	}
	if one.err != nil {
		s.Error = one.err.Error()
	}
	return []Span{s}
}

// place returns where a call with that trace context is, and its parent's id.
// The first call decides where the sandbox's own span is.
func (c *composer) place(header string) (at spanContext, parent string) {
	origin, ok := parseContext(header)
	if c.root.trace == "" {
		c.root = spanContext{trace: newID(traceDigits), span: newID(spanDigits)}
		if ok {
			c.root.trace, c.root.dropped, c.rootParent = origin.trace, origin.dropped, origin.span
		}
	}
	if !ok {
		origin = c.root
	}
	return spanContext{trace: origin.trace, span: newID(spanDigits), dropped: origin.dropped}, origin.span
}

// hold keeps a call until the spans that it may enclose are sent.
func (c *composer) hold(one heldCall) {
	id := one.container
	switch {
	case strings.HasSuffix(one.method, "/Delete") && one.exec == "":
		delete(c.held, id)
		delete(c.due, id)
		delete(c.sent, id) // the id may be used again
	case one.err != nil || one.exec != "" || c.sent[id] || !one.mayEnclose():
	default:
		c.held[id] = append(c.held[id], one)
		if one.starts() {
			c.due[id] = true
		}
	}
}

// wants reports whether a timeline is needed.
func (c *composer) wants() bool { return len(c.due) > 0 }

// addTimeline returns the spans of the parts that are due.
func (c *composer) addTimeline(t *timeline.Timeline) []Span {
	parents, ids := t.Parents(), make([]string, len(t.Spans))
	for i := range ids {
		ids[i] = newID(spanDigits)
	}
	var spans []Span
	if c.due[""] {
		spans = c.rootSpan(t)
	}
	for i, s := range t.Spans {
		top := i
		for parents[top] >= 0 {
			top = parents[top]
		}
		around := c.around(t, t.Spans[top])
		if !c.due[s.Container] || around.dropped {
			continue
		}
		parent := around.span
		if parents[i] >= 0 {
			parent = ids[parents[i]]
		}
		spans = append(spans, ofTimeline(t, s, spanContext{trace: around.trace, span: ids[i]}, parent))
	}
	c.settle()
	return spans
}

// rootSpan is the span of the sandbox: from the engine's first call to the end
// of the boot.
func (c *composer) rootSpan(t *timeline.Timeline) []Span {
	if c.root.dropped || len(t.Spans) == 0 {
		return nil
	}
	var end time.Duration
	for _, s := range t.Spans {
		if s.Container == "" {
			end = max(end, s.End)
		}
	}
	return []Span{{Trace: c.root.trace, ID: c.root.span, Parent: c.rootParent, Name: "sandbox", Start: t.Began, End: t.Began.Add(end)}}
}

// around returns the shortest call that encloses a span of the timeline, or the
// sandbox's own span.
func (c *composer) around(t *timeline.Timeline, s timeline.Span) spanContext {
	id := s.Container
	if id == "" {
		id = c.sandbox
	}
	start, end := t.Began.Add(s.Start), t.Began.Add(s.End)
	best, found := c.root, time.Duration(0)
	for _, one := range c.held[id] {
		took := one.end.Sub(one.start)
		if !one.start.After(start) && !one.end.Before(end) && (found == 0 || took < found) {
			best, found = one.at, took
		}
	}
	return best
}

// settle notes that all parts that were due are sent.
func (c *composer) settle() {
	for id := range c.due {
		c.sent[id] = true
	}
	clear(c.due)
	maps.DeleteFunc(c.held, func(id string, _ []heldCall) bool { return c.sent[id] && (id != c.sandbox || c.sent[""]) })
}

func ofTimeline(t *timeline.Timeline, s timeline.Span, at spanContext, parent string) Span {
	span := Span{
		Trace: at.trace, ID: at.span, Parent: parent, Name: s.Name, Guest: s.Side == timeline.Guest,
		Start: t.Began.Add(s.Start), End: t.Began.Add(s.End),
	}
	if s.Container != "" {
		span.Attributes = map[string]string{"container.id": s.Container}
	}
	return span
}
