package sizing

import "github.com/katabox/katabox/virtcontainers/sizing/resource"

// admitPart returns the need of a container that is created, under what the pod may use.
// One that comes back with other limits was changed without an Update: the kubelet
// creates a container again to resize it, if its resizePolicy is RestartContainer. The
// caller holds resizes.
func (p *Pod) admitPart(c Container, need resource.Need) resource.Need {
	if before, known := p.parts[c.Name]; known {
		p.whole = p.whole.Outdated(before, need)
	}
	need = need.Under(p.whole)
	p.rememberPart(c, need)
	return need
}

// updatePart follows an update of a container. The caller holds resizes.
func (p *Pod) updatePart(c Container, before, after resource.Need) {
	p.whole = p.whole.Outdated(before, after)
	p.rememberPart(c, after)
}

// rememberPart remembers what a container with a name in its pod may use; the others do
// not come back.
func (p *Pod) rememberPart(c Container, need resource.Need) {
	if c.Name != "" {
		p.parts[c.Name] = need
	}
}
