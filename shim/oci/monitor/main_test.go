package monitor

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	switch role := os.Getenv(jobEnv); role {
	case "":
		goleak.VerifyTestMain(m)
	default:
		os.Exit(jobMain(role))
	}
}
