package engines

import (
	"context"
	"slices"
)

// scene plays one subject with an engine's client and records the outcomes. It
// is the same for every engine and every runtime.
type scene struct {
	name string
	// needs is a feature without which an engine cannot play it.
	needs Feature
	// short marks those that are played with -short too.
	short bool
	play  func(context.Context, *stage)
}

func scenes() []scene {
	return slices.Concat(runScenes(), execScenes(), lifeScenes(), changeScenes(), daemonScenes(), fileScenes(), networkScenes(), connectScenes(), limitScenes(), rightScenes(),
		podScenes(), readerScenes())
}
