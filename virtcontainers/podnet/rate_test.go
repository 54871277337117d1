package podnet

import (
	"testing"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/network"
)

// The configuration accepts the rates that a network takes, and no others: with a wrong
// one no pod would start.
func TestRatesOfTheConfiguration(t *testing.T) {
	if config.MinBitRate != network.MinRate || config.MaxBitRate != network.MaxRate {
		t.Errorf("the configuration takes %d to %d bit/s, a network %d to %d",
			uint64(config.MinBitRate), uint64(config.MaxBitRate), uint64(network.MinRate), uint64(network.MaxRate))
	}
}
