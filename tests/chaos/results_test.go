package chaos

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// outcome is how the rounds of one pair went.
type outcome struct {
	verdict string
	rounds  int
	total   time.Duration
}

func (o outcome) String() string {
	if o.rounds == 0 {
		return "-"
	}
	if o.total == 0 {
		return o.verdict
	}
	return fmt.Sprintf("%s %.1fs", o.verdict, (o.total / time.Duration(o.rounds)).Seconds())
}

// table holds the outcomes by moment and victim. The tests are serial.
type table map[[2]string]outcome

var results = table{}

func (t table) add(moment, victim, verdict string, took time.Duration) {
	o := t[[2]string{moment, victim}]
	if o.verdict != "FAIL" {
		o.verdict = verdict
	}
	o.rounds++
	o.total += took
	t[[2]string{moment, victim}] = o
}

// print writes the table, with each pair's mean time.
func (t table) print(out io.Writer) {
	if len(t) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprint(w, "moment")
	columns := slices.Concat(victims, stops)
	for _, v := range columns {
		_, _ = fmt.Fprintf(w, "\t%s", v.name)
	}
	for _, m := range moments {
		_, _ = fmt.Fprintf(w, "\n%s", m.name)
		for _, v := range columns {
			_, _ = fmt.Fprintf(w, "\t%v", t[[2]string{m.name, v.name}])
		}
	}
	_, _ = fmt.Fprintln(w)
	_ = w.Flush() // a table that cannot be shown is no failure
}
