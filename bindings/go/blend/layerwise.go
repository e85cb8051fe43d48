package blend

import (
	"context"
	"runtime"

	"libblend.io/go/internal/raw"
)

// Layerwise is the step API, for hosts that run the model themselves: docs/step-api.md has the order of the
// calls. Methods that change it give ErrInUse while another call runs on it. See the package's notes
// on goroutines and lifetime.
type Layerwise struct {
	raw  raw.Layerwise
	call *call // what cancels it and who is told, as long as it lives
}

// NewLayerwise looks the prompt's segments up and starts loading. Arguments are those of Fuse; ctx and the
// callbacks of options hold for all of the layerwise fuse's life. Errors: as Fuse.
func NewLayerwise(ctx context.Context, m *Model, s *Store, p Prompt, options *FuseOptions) (*Layerwise, error) {
	if m == nil || m.raw == nil {
		return nil, closed("model")
	}
	defer runtime.KeepAlive(m)
	store, done, err := s.use()
	if err != nil {
		return nil, err
	}
	defer done()
	prompt, err := p.make()
	if err != nil {
		return nil, err
	}
	defer raw.DeletePrompt(prompt)
	o, l, err := options.make()
	if err != nil {
		return nil, err
	}
	defer raw.DeleteFuseOptions(o)
	c, err := begin(ctx, l)
	if err != nil {
		return nil, err
	}
	c.set(o)
	made := raw.LayerwiseCreate(m.raw, store, prompt, o, c.out)
	if err := c.failure(); err != nil {
		c.free()
		return nil, err
	}
	layerwise := &Layerwise{raw: made, call: c}
	runtime.SetFinalizer(layerwise, func(p *Layerwise) {
		p.raw.Close()
		raw.DeleteLayerwise(p.raw)
		p.call.free()
	})
	return layerwise, nil
}

func (p *Layerwise) do(use func(r raw.Layerwise, out raw.Outcome)) error {
	if p == nil || p.raw == nil {
		return closed("layerwise fuse")
	}
	defer runtime.KeepAlive(p)
	out := raw.NewOutcome()
	defer raw.DeleteOutcome(out)
	use(p.raw, out)
	return p.call.failureOf(out)
}

// Restart starts again at layer 0; layers fetched so far are void. After ErrCorrupt the damaged chunk
// is a miss.
func (p *Layerwise) Restart() error {
	return p.do(func(r raw.Layerwise, out raw.Outcome) { r.Restart(out) })
}

// FetchKV says where the stored rows of a layer go: memory for all rows of the prompt, which must stay
// until Synchronize of the layer, or Restart or Close, came back; of Info's LastAskedLayer, where Probe is due,
// until the Synchronize after Probe. Returns at once.
func (p *Layerwise) FetchKV(layer int, kv KVView) error {
	view := kv.make()
	defer raw.DeleteKvView(view)
	return p.do(func(r raw.Layerwise, out raw.Outcome) { r.Fetch_kv(count(layer), view, out) })
}

// Synchronize waits until the stored rows of a layer are in place. Errors: ErrCorrupt (Restart),
// ErrIO, ErrNumeric, ErrCancelled, ErrInvalidArgument.
func (p *Layerwise) Synchronize(layer int) error {
	return p.do(func(r raw.Layerwise, out raw.Outcome) { r.Synchronize(count(layer), out) })
}

// Probe gives the rows to begin layer 0 with, where the question chooses (PolicyCascade, PolicyProbe,
// PolicyAttention): due at Info's LastAskedLayer, once it is synchronized. attention has, for every row of the
// prompt, what the question's rows attend to, mean over heads, these rows and the layers from FirstAskedLayer to
// LastAskedLayer. Errors: ErrInvalidArgument, ErrCancelled.
func (p *Layerwise) Probe(attention []float32) (rows []uint32, err error) {
	err = p.do(func(r raw.Layerwise, out raw.Outcome) { rows = taken[uint32](r.Probe(attention, out)) })
	return rows, err
}

// Select returns the rows to go on with after this layer, of Rows, ascending. fresh has their K and V,
// row i of it those of Rows()[i]; it may be nil where nothing is measured. Errors: ErrInvalidArgument,
// ErrNumeric (names the row), ErrCancelled.
func (p *Layerwise) Select(layer int, fresh *KVView) (rows []uint32, err error) {
	view := given(fresh).make()
	defer raw.DeleteKvView(view)
	err = p.do(func(r raw.Layerwise, out raw.Outcome) { rows = taken[uint32](r.Choose(count(layer), view, out)) })
	return rows, err
}

// Commit ends the layer.
func (p *Layerwise) Commit(layer int) error {
	return p.do(func(r raw.Layerwise, out raw.Outcome) { r.Commit(count(layer), out) })
}

// Rows gives the rows that the host computes at this point, ascending.
func (p *Layerwise) Rows() (rows []uint32, err error) {
	err = p.do(func(r raw.Layerwise, out raw.Outcome) { rows = taken[uint32](r.Rows(out)) })
	return rows, err
}

// Tokens gives the prompt's tokens.
func (p *Layerwise) Tokens() (tokens []int32, err error) {
	err = p.do(func(r raw.Layerwise, out raw.Outcome) { tokens = taken[int32](r.Tokens(out)) })
	return tokens, err
}

// Selected gives the rows that the policy chose, ascending.
func (p *Layerwise) Selected() (rows []uint32, err error) {
	err = p.do(func(r raw.Layerwise, out raw.Outcome) { rows = taken[uint32](r.Selected(out)) })
	return rows, err
}

// Deviation gives the deviation of every prompt row at the first check layer.
func (p *Layerwise) Deviation() (deviation []float32, err error) {
	err = p.do(func(r raw.Layerwise, out raw.Outcome) { deviation = taken[float32](r.Deviation(out)) })
	return deviation, err
}

// Info gives the account so far.
func (p *Layerwise) Info() (info FusionInfo, err error) {
	err = p.do(func(r raw.Layerwise, out raw.Outcome) { info = takenFusionInfo(r.Info(out)) })
	return info, err
}

// Layers gives the account of every layer.
func (p *Layerwise) Layers() (infos []LayerInfo, err error) {
	err = p.do(func(r raw.Layerwise, out raw.Outcome) {
		n := takenFusionInfo(r.Info(out)).Layers
		for i := 0; i < n && out.Code() >= 0; i++ {
			infos = append(infos, takenLayerInfo(r.Layer(count(i), out)))
		}
	})
	return infos, err
}

// Segments gives what became of every segment.
func (p *Layerwise) Segments() (infos []SegmentInfo, err error) {
	err = p.do(func(r raw.Layerwise, out raw.Outcome) {
		n := takenFusionInfo(r.Info(out)).Segments
		for i := 0; i < n && out.Code() >= 0; i++ {
			infos = append(infos, takenSegmentInfo(r.Segment(int64(i), out)))
		}
	})
	return infos, err
}

// Close waits for a read under way; memory given to Fetch is not written any more.
func (p *Layerwise) Close() error {
	if p == nil || p.raw == nil {
		return nil
	}
	defer runtime.KeepAlive(p)
	p.raw.Close()
	return nil
}
