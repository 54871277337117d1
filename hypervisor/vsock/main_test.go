package vsock

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if imageDir != "" {
			_ = os.RemoveAll(imageDir)
		}
		os.Exit(code)
	}))
}
