package guesttest

import (
	"fmt"
	"os"
	"testing"
)

// drawKey names the variable that draws cases of the long comparisons: N/SEED plays
// one in N. It has the same name on the host and in the guest.
const drawKey = "KATABOX_TEST_GUEST_DRAW"

// drawn returns the names that are played: all, unless drawKey draws some.
func drawn(t *testing.T, names []string) []string {
	t.Helper()
	text := os.Getenv(drawKey)
	if text == "" {
		return names
	}
	var oneIn, seed uint64
	if _, err := fmt.Sscanf(text, "%d/%d", &oneIn, &seed); err != nil || oneIn == 0 {
		t.Fatalf("%s=%s: want N/SEED", drawKey, text)
	}
	var some []string
	for i := seed % oneIn; i < uint64(len(names)); i += oneIn {
		some = append(some, names[i])
	}
	t.Logf("%s=%s: %d of %d cases", drawKey, text, len(some), len(names))
	return some
}

func TestDraw(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	played := map[string]int{}
	for _, draw := range []string{"3/0", "3/7", "3/5"} {
		t.Setenv(drawKey, draw)
		for _, name := range drawn(t, names) {
			played[name]++
		}
	}
	for _, name := range names {
		if played[name] != 1 {
			t.Errorf("%s is drawn by %d of 3 seeds, want 1", name, played[name])
		}
	}
	t.Setenv(drawKey, "")
	if got := drawn(t, names); len(got) != len(names) {
		t.Errorf("without a draw: %v", got)
	}
}
