// Package cri runs the CRI project's conformance suite and crictl against
// Katabox, through a real containerd 2.x with CRI and a real pod network.
//
// TestCritest runs critest twice under one containerd configuration, with runc
// and with Katabox, and compares case by case: what passes with runc must pass
// with Katabox, except for the list in known_test.go, which is also in
// docs/compat.md. TestCrictl tries crictl's commands, TestChurn makes and
// removes pods.
//
// Needs root, and what "make critools build guest-image containerd" makes.
// The pods' world is in tests/cri/env, the images in tests/cri/images.
package cri
