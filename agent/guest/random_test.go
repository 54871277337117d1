package guest

import (
	"bytes"
	"testing"
)

func TestPoolInfo(t *testing.T) {
	want := []byte{24, 0, 0, 0, 3, 0, 0, 0, 'a', 'b', 'c'}
	if got := poolInfo([]byte("abc")); !bytes.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
