package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
)

func TestQuiet(t *testing.T) {
	var out bytes.Buffer
	logger := logrus.New()
	logger.SetFormatter(&logrus.JSONFormatter{})
	logger.SetOutput(quiet{&out})
	logger.Warn("cannot serialize hook of type configs.FuncHook, skipping")
	logger.Warn(`one that says {"msg":"cannot serialize hook of type x"}`)
	logger.WithField("x", `"msg":"cannot serialize hook of type `).Warn("other")
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines are left, want 2: %s", n, &out)
	}
}
