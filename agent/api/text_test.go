package api

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"
)

func TestErrorText(t *testing.T) {
	text := ErrorText(errors.New("open /vol/\xe9t\xe9: no such file"))
	if text != "open /vol/?t?: no such file" {
		t.Errorf("text %q", text)
	}
	if _, err := proto.Marshal(&StreamOpened{Error: text}); err != nil {
		t.Error(err)
	}
}
