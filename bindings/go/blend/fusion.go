package blend

import (
	"context"
	"runtime"

	"libblend.io/go/internal/raw"
)

// Fusion is one prompt's fused KV cache and the logits of its last row. Methods that change it give
// ErrInUse while another call runs on it (also from a callback of that call), and ErrViewHeld while a
// function that Logits or Deviation called has its memory. See the package's notes on goroutines and lifetime.
type Fusion struct {
	raw raw.Fusion
}

func newFusion(r raw.Fusion) *Fusion {
	f := &Fusion{raw: r}
	runtime.SetFinalizer(f, func(f *Fusion) { raw.DeleteFusion(f.raw) })
	return f
}

// Fuse makes one KV cache of the prompt's segments and computes the logits of its last row. s may be
// nil with PolicyFull or MissCompute, options may be nil. Errors: ErrInvalidArgument (names the
// segment), ErrContextLength, ErrNotFound, ErrMismatch (a chunk of another model), ErrIO, ErrNumeric,
// ErrOutOfMemory, ErrCancelled.
func (m *Model) Fuse(ctx context.Context, s *Store, p Prompt, options *FuseOptions) (*Fusion, error) {
	if m == nil || m.raw == nil {
		return nil, closed("model")
	}
	defer runtime.KeepAlive(m)
	var made raw.Fusion
	err := fusing(ctx, s, p, options, func(s raw.Store, p raw.Prompt, o raw.FuseOptions, out raw.Outcome) {
		made = raw.FusionFuse(m.raw, s, p, o, out)
	})
	if err != nil {
		return nil, err
	}
	return newFusion(made), nil
}

// fusing makes the arguments of a fuse, and frees them.
func fusing(ctx context.Context, s *Store, p Prompt, options *FuseOptions,
	use func(raw.Store, raw.Prompt, raw.FuseOptions, raw.Outcome)) error {
	store, done, err := s.use()
	if err != nil {
		return err
	}
	defer done()
	prompt, err := p.make()
	if err != nil {
		return err
	}
	defer raw.DeletePrompt(prompt)
	o, l, err := options.make()
	if err != nil {
		return err
	}
	defer raw.DeleteFuseOptions(o)
	c, err := begin(ctx, l)
	if err != nil {
		return err
	}
	c.set(o)
	use(store, prompt, o, c.out)
	return c.end()
}

// RestoreOptions are options of Restore. The zero value has the defaults.
type RestoreOptions struct {
	Tenant        string // whose it is, as given to Save
	ReserveTokens int    // free rows for what follows; 0: 256, -1: none
}

// Restore brings a saved fusion back. options may be nil. Errors:
// ErrNotFound, ErrMismatch (another model's), ErrCorrupt (fuse the tokens again), ErrContextLength, ErrIO,
// ErrOutOfMemory, ErrCancelled.
func (m *Model) Restore(ctx context.Context, s *Store, id ChunkID, options *RestoreOptions) (*Fusion, error) {
	if m == nil || m.raw == nil {
		return nil, closed("model")
	}
	if s == nil || s.raw == nil {
		return nil, closed("store")
	}
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(s)
	c, err := begin(ctx, nil)
	if err != nil {
		return nil, err
	}
	o := given(options)
	switch {
	case o.ReserveTokens == 0:
		o.ReserveTokens = 256
	case o.ReserveTokens < 0:
		o.ReserveTokens = 0
	}
	made := raw.FusionRestore(m.raw, s.raw, string(id), o.Tenant, count(o.ReserveTokens), c.cancel, c.out)
	if err := c.end(); err != nil {
		return nil, err
	}
	return newFusion(made), nil
}

// read makes a call that does not change the fusion.
func (f *Fusion) read(use func(r raw.Fusion, out raw.Outcome)) error {
	if f == nil || f.raw == nil {
		return closed("fusion")
	}
	defer runtime.KeepAlive(f)
	return simple(func(out raw.Outcome) { use(f.raw, out) })
}

// call makes one that may be cancelled.
func (f *Fusion) call(ctx context.Context, use func(r raw.Fusion, c *call)) error {
	if f == nil || f.raw == nil {
		return closed("fusion")
	}
	defer runtime.KeepAlive(f)
	c, err := begin(ctx, nil)
	if err != nil {
		return err
	}
	use(f.raw, c)
	return c.end()
}

// Extend fuses the segments of a next turn after the present rows. There is no Prefix among them.
// On failure the fusion is as before. Errors: as Fuse.
func (f *Fusion) Extend(ctx context.Context, s *Store, p Prompt, options *FuseOptions) error {
	if f == nil || f.raw == nil {
		return closed("fusion")
	}
	defer runtime.KeepAlive(f)
	return fusing(ctx, s, p, options, func(s raw.Store, p raw.Prompt, o raw.FuseOptions, out raw.Outcome) {
		f.raw.Extend(s, p, o, out)
	})
}

// SaveOptions are options of Save.
type SaveOptions struct {
	Tenant string // whose it is
}

// Save keeps the fusion in the store, until Model.Restore. Writing goes on in the background:
// Store.Flush waits for it. options may be nil. Errors: ErrReadOnly, ErrNumeric, ErrOutOfMemory, ErrCancelled.
func (f *Fusion) Save(ctx context.Context, s *Store, options *SaveOptions) (id ChunkID, err error) {
	if s == nil || s.raw == nil {
		return "", closed("store")
	}
	defer runtime.KeepAlive(s)
	err = f.call(ctx, func(r raw.Fusion, c *call) {
		id = ChunkID(r.Save(s.raw, given(options).Tenant, c.cancel, c.out))
	})
	return id, err
}

// Info returns the report of the fuse.
func (f *Fusion) Info() (info FusionInfo, err error) {
	err = f.read(func(r raw.Fusion, out raw.Outcome) { info = takenFusionInfo(r.Info(out)) })
	return info, err
}

// Layers gives the account of every layer.
func (f *Fusion) Layers() (infos []LayerInfo, err error) {
	err = f.read(func(r raw.Fusion, out raw.Outcome) {
		n := takenFusionInfo(r.Info(out)).Layers
		for i := 0; i < n && out.Code() >= 0; i++ {
			infos = append(infos, takenLayerInfo(r.Layer(count(i), out)))
		}
	})
	return infos, err
}

// Segments gives what became of every segment.
func (f *Fusion) Segments() (infos []SegmentInfo, err error) {
	err = f.read(func(r raw.Fusion, out raw.Outcome) {
		n := takenFusionInfo(r.Info(out)).Segments
		for i := 0; i < n && out.Code() >= 0; i++ {
			infos = append(infos, takenSegmentInfo(r.Segment(int64(i), out)))
		}
	})
	return infos, err
}

// Tokens returns the tokens of all present rows, the prompt's and those appended since.
func (f *Fusion) Tokens() (tokens []int32, err error) {
	err = f.read(func(r raw.Fusion, out raw.Outcome) { tokens = taken[int32](r.Tokens(out)) })
	return tokens, err
}

// Selected gives the rows that the policy recomputed, ascending.
func (f *Fusion) Selected() (rows []uint32, err error) {
	err = f.read(func(r raw.Fusion, out raw.Outcome) { rows = taken[uint32](r.Selected(out)) })
	return rows, err
}

// Logits lends look the logits of the last row, one for each of the model's vocabulary. They are the
// library's memory: not to be written, nor kept. The error is look's.
func (f *Fusion) Logits(look func(logits []float32) error) error {
	return f.look(look, func(r raw.Fusion, out raw.Outcome) raw.View { return r.Logits(out) })
}

// Deviation lends look the deviation of every prompt row at the first check layer, 0 where it was
// not measured, as Logits does.
func (f *Fusion) Deviation(look func(deviation []float32) error) error {
	return f.look(look, func(r raw.Fusion, out raw.Outcome) raw.View { return r.Deviation(out) })
}

func (f *Fusion) look(look func([]float32) error, lend func(raw.Fusion, raw.Outcome) raw.View) error {
	var view raw.View
	err := f.read(func(r raw.Fusion, out raw.Outcome) { view = lend(r, out) })
	if view == nil {
		return err
	}
	defer raw.DeleteView(view)
	if err != nil {
		return err
	}
	return recovered(func() error { return look(lent[float32](view)) })
}

// Decode appends tokens and computes the logits of the last of them. A call that failed or was
// cancelled leaves the fusion as it was. Errors: ErrInvalidArgument, ErrContextLength (more rows than
// were reserved), ErrNumeric, ErrCancelled.
func (f *Fusion) Decode(ctx context.Context, tokens []int32) error {
	return f.call(ctx, func(r raw.Fusion, c *call) { r.Decode(tokens, c.cancel, c.out) })
}

// MakeExact replaces K and V of all rows by those of full prefill, and appends those of the tokens that
// greedy decoding gives, up to the first that it does not; kept says how many. So an
// answer can be shown at once, from a Fork, and corrected a moment later: Generate at temperature 0 goes on
// from there, and the answer is full prefill's. Costs a full prefill, once. A call that failed in it
// leaves the fusion as it was. Errors: ErrInvalidArgument, ErrContextLength, ErrNumeric, ErrOutOfMemory,
// ErrCancelled.
func (f *Fusion) MakeExact(ctx context.Context, tokens []int32) (kept int, err error) {
	err = f.call(ctx, func(r raw.Fusion, c *call) { kept = int(r.Make_exact(tokens, c.cancel, c.out)) })
	return kept, err
}

// Replace replaces n rows from first on with tokens. New rows are computed; the rows after them
// keep their V and rotate their K: docs/quality.md says what that costs. A call that failed leaves
// the fusion as it was. Errors: ErrInvalidArgument, ErrContextLength, ErrNumeric, ErrOutOfMemory,
// ErrCancelled.
func (f *Fusion) Replace(ctx context.Context, first, n int, tokens []int32) error {
	if first < 0 || n < 0 {
		return invalid("rows %d to %d are none of the fusion's", first, first+n)
	}
	return f.call(ctx, func(r raw.Fusion, c *call) {
		r.Replace(uint64(first), uint64(n), tokens, c.cancel, c.out)
	})
}

// Erase is Replace without tokens.
func (f *Fusion) Erase(ctx context.Context, first, n int) error {
	if first < 0 || n < 0 {
		return invalid("rows %d to %d are none of the fusion's", first, first+n)
	}
	return f.call(ctx, func(r raw.Fusion, c *call) { r.Erase(uint64(first), uint64(n), c.cancel, c.out) })
}

// Fork gives a second fusion with what this one has now, for several answers to one prompt: K and V are
// shared until one of them is written to, so that it costs the rows that come. Any of them may be closed
// first. Errors: ErrOutOfMemory.
func (f *Fusion) Fork() (*Fusion, error) {
	var made raw.Fusion
	if err := f.read(func(r raw.Fusion, out raw.Outcome) { made = r.Fork(out) }); err != nil {
		return nil, err
	}
	return newFusion(made), nil
}

// Close frees the fusion's memory, or lets a call that runs do it.
func (f *Fusion) Close() error {
	if f == nil || f.raw == nil {
		return nil
	}
	defer runtime.KeepAlive(f)
	f.raw.Close()
	return nil
}
