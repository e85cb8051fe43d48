package blend

import (
	"context"
	"runtime"

	"libblend.io/go/internal/raw"
)

// Request is one prompt of FuseBatch. Options may be nil, and shared by several requests.
type Request struct {
	Prompt  Prompt
	Options *FuseOptions
}

// Result is that of one Request: a fusion, which the caller closes, or an error.
type Result struct {
	Fusion *Fusion
	Err    error
}

// FuseBatch fuses prompts together, layer by layer in step: a chunk that several of them have is
// read once. A prompt that fails leaves the others alone. There are as many results as requests,
// unless the whole call fails.
func (m *Model) FuseBatch(ctx context.Context, s *Store, requests []Request) ([]Result, error) {
	if m == nil || m.raw == nil {
		return nil, closed("model")
	}
	if len(requests) == 0 {
		return nil, nil
	}
	defer runtime.KeepAlive(m)
	store, done, err := s.use()
	if err != nil {
		return nil, err
	}
	defer done()
	batch := raw.NewBatch()
	defer raw.DeleteBatch(batch)
	calls := make([]*call, 0, len(requests))
	defer func() {
		for _, c := range calls {
			c.free()
		}
	}()
	for _, request := range requests {
		c, err := request.add(ctx, batch)
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	if err := simple(func(out raw.Outcome) { batch.Fuse(m.raw, store, out) }); err != nil {
		return nil, err
	}
	results := make([]Result, len(requests))
	for i, c := range calls {
		made := batch.Take(int64(i), c.out)
		if err := c.failure(); err != nil {
			results[i].Err = err
		} else {
			results[i].Fusion = newFusion(made)
		}
	}
	return results, nil
}

// add puts the request into the batch; the caller frees the call.
func (q Request) add(ctx context.Context, batch raw.Batch) (*call, error) {
	prompt, err := q.Prompt.make()
	if err != nil {
		return nil, err
	}
	defer raw.DeletePrompt(prompt)
	o, l, err := q.Options.make()
	if err != nil {
		return nil, err
	}
	defer raw.DeleteFuseOptions(o)
	c, err := begin(ctx, l)
	if err != nil {
		return nil, err
	}
	c.set(o)
	batch.Add(prompt, o)
	return c, nil
}
