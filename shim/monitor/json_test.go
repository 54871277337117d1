package monitor

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFamiliesAsJSON(t *testing.T) {
	families, err := parse([]byte(`# HELP b_total Things.
# TYPE b_total counter
b_total{x="1"} 3
b_total{x="2"} +Inf
# TYPE a histogram
a_bucket{le="0.5"} 1
a_bucket{le="+Inf"} 2
a_sum 1.5
a_count 2
c 7
`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(families)
	want := `[{"name":"a","type":"histogram","samples":[{"count":2,"sum":1.5,"buckets":{"+Inf":2,"0.5":1}}]},` +
		`{"name":"b_total","help":"Things.","type":"counter","samples":[{"labels":{"x":"1"},"value":3},{"labels":{"x":"2"},"value":"+Inf"}]},` +
		`{"name":"c","type":"untyped","samples":[{"value":7}]}]`
	if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}
