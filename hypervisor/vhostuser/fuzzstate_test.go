package vhostuser

import (
	"testing"
)

// FuzzStates is a front end that sends valid requests in any order, against a
// device that uses its queue concurrently: requests that are well-formed, and
// wrong at the worst moment. Nothing panics, and Serve ends.
//
// Each byte of the input is a step: an action, and a small number for it.
func FuzzStates(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 16 + 6, 6, 7})
	f.Add([]byte{0, 1, 2, 3, 4, 5, 7, 16 + 2, 6, 7}) // a bad address while running
	f.Add([]byte{0, 1, 2, 3, 4, 5, 7, 16, 7, 8, 1, 5, 7})
	f.Fuzz(func(t *testing.T, input []byte) {
		for _, owner := range []Owner{nil, self{}} {
			walkStates(t, owner, input)
		}
	})
}

func walkStates(t *testing.T, owner Owner, input []byte) {
	front, ended := serve(t, newReverser(owner))
	front.Handshake()
	q := front.NewQueue(0, 8)
	steps := q.Steps()
	for _, b := range input[:min(len(input), 64)] {
		step := steps[int(b&15)%len(steps)]
		if step(uint32(b>>4)) != nil {
			break // the back end has hung up
		}
		if b&15 == 7 {
			q.Offer(uint16(b >> 4 & 7))
		}
	}
	front.Close()
	_ = await(t, ended)
}
