package monitor

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/katabox/katabox/virtcontainers"
)

// Families are metrics by their names.
type Families map[string]*dto.MetricFamily

// scraped is one pod's answer.
type scraped struct {
	families Families
	pod      virtcontainers.Description
	err      error
}

// Scrape asks each pod for its metrics and returns them together, each sample
// with the labels sandbox_id, cri_uid, cri_name and cri_namespace, and the errors
// of the pods that did not answer. A family whose type differs from that of the
// first pod with it is left out.
func Scrape(ctx context.Context, pods []Pod) (Families, []error) {
	answers := make([]scraped, len(pods))
	Each(pods, func(i int, p Pod) { answers[i] = scrapeOne(ctx, p) })
	all := make(Families)
	var errs []error
	for i, a := range answers {
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		all.add(a, pods[i].ID)
	}
	return all, errs
}

func scrapeOne(ctx context.Context, p Pod) scraped {
	d, err := p.Describe(ctx)
	if err != nil {
		return scraped{err: err}
	}
	text, err := p.Ask(ctx, "/metrics")
	if err != nil {
		return scraped{err: err}
	}
	families, err := parse(text)
	if err != nil {
		err = fmt.Errorf("scrape pod %s: %w", p.ID, err)
	}
	return scraped{families, d, err}
}

func parse(text []byte) (Families, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}

// add adds the samples of one pod.
func (f Families) add(a scraped, id string) {
	labels := pairs("sandbox_id", id, "cri_uid", a.pod.Pod.UID, "cri_name", a.pod.Pod.Name, "cri_namespace", a.pod.Pod.Namespace)
	for name, family := range a.families {
		for _, m := range family.GetMetric() {
			m.Label = append(m.Label, labels...)
			slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
		}
		known := f[name]
		if known == nil {
			f[name] = family
			continue
		}
		if known.GetType() == family.GetType() {
			known.Metric = append(known.Metric, family.Metric...)
		}
	}
}

// pairs are labels of pairs of name and value.
func pairs(texts ...string) []*dto.LabelPair {
	var labels []*dto.LabelPair
	for i := 0; i+1 < len(texts); i += 2 {
		labels = append(labels, &dto.LabelPair{Name: &texts[i], Value: &texts[i+1]})
	}
	return labels
}

// Write writes the metrics in Prometheus's text format, in the order of their names.
func (f Families) Write(w io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if _, err := expfmt.MetricFamilyToText(w, f[name]); err != nil {
			return fmt.Errorf("write metrics: %w", err)
		}
	}
	return nil
}
