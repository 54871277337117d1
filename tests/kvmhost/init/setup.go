package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/katabox/katabox/tests/kvmhost/wire"
)

// readSetup reads what the host put beside this program.
func readSetup() (wire.Setup, error) {
	var setup wire.Setup
	data, err := os.ReadFile("/" + wire.SetupName)
	if err == nil {
		err = json.Unmarshal(data, &setup)
	}
	if err != nil {
		return setup, fmt.Errorf("read the machine's setup: %w", err)
	}
	return setup, nil
}

// problemEnv carries the problems of the boot to the server.
const problemEnv = "KVMHOST_PROBLEM="

func asEnv(problems []string) []string {
	var env []string
	for i, p := range problems {
		env = append(env, fmt.Sprintf("%d%s%s", i, problemEnv, p))
	}
	return env
}

func problemsFromEnv() []string {
	var problems []string
	for _, e := range os.Environ() {
		if _, p, ok := strings.Cut(e, problemEnv); ok {
			problems = append(problems, p)
		}
	}
	return problems
}
