package guest_test

import (
	"testing"

	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// BenchmarkCall is a call without a deadline, and its answer, over a socket pair.
func BenchmarkCall(b *testing.B) {
	a := fakeguest.NewAgent()
	defer a.Die()
	c, err := guest.Connect(b.Context(), a.Dial)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for b.Loop() {
		if err := c.Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
