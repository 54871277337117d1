package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/standalone/image"
	"github.com/katabox/katabox/standalone/store"
)

// When a registry is asked for an image that the store already has.
const (
	pullMissing = "missing"
	pullAlways  = "always"
	pullNever   = "never"
)

// findImage finds an image, and unpacks the layers that the store lacks.
func findImage(ctx context.Context, s *store.Store, text, pull string, stderr io.Writer) (store.Image, error) {
	ref, err := image.Parse(text)
	if err != nil {
		return store.Image{}, err
	}
	switch pull {
	case pullMissing, pullAlways, pullNever:
	default:
		return store.Image{}, fmt.Errorf("pull %q: want missing, always or never: %w", pull, errdefs.ErrInvalidArgument)
	}
	switch ref.Kind {
	case image.Rootfs:
		return store.Image{Name: ref.String(), Dir: ref.Path}, nil
	case image.Registry:
		if pull == pullAlways {
			break
		}
		img, err := s.Find(ref.String())
		if err == nil || !errdefs.IsNotFound(err) || pull == pullNever {
			return img, err
		}
	}
	return unpack(ctx, s, ref, stderr)
}

// unpack opens an image and adds it to the store. The layers of a file or a
// directory are compared each time: they may have changed.
func unpack(ctx context.Context, s *store.Store, ref image.Reference, stderr io.Writer) (img store.Image, err error) {
	opened, err := image.Open(ctx, ref, s.Scratch())
	if err != nil {
		return store.Image{}, err
	}
	p := newProgress(stderr, ref.String())
	img, err = s.Add(ctx, opened.Source, p)
	p.end()
	return img, errors.Join(err, opened.Close())
}
