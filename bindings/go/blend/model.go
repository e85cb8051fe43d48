package blend

import (
	"context"
	"runtime"

	"libblend.io/go/internal/raw"
)

// Model is the weights, tokenizer and description of one model. Immutable. See the package's notes
// on goroutines and lifetime.
type Model struct {
	raw raw.Model
}

// ModelOptions are options of OpenModel. The zero value has the defaults.
type ModelOptions struct {
	// Loras are LoRA adapters, which add up. Chunks that are stored with them are found with them alone.
	Loras []Lora
	//blend:fields model_options
	// Progress is told the bytes of weights read; an error stops the call, which gives it back.
	Progress func(done, total int64) error
}

// Lora is a LoRA adapter that a model is opened with.
type Lora struct {
	Path  string  // a GGUF file, or a PEFT directory
	Scale float64 // of what it adds, besides its own alpha; 0: 1
}

// OpenModel opens a GGUF file or a Hugging Face directory. options may be nil. Errors: ErrNotFound,
// ErrIO, ErrFormat (names the offset or tensor), ErrUnsupported (names what was met), ErrNumeric,
// ErrMismatch (a LoRA adapter of another model), ErrOutOfMemory, ErrCancelled.
func OpenModel(ctx context.Context, c *Context, path string, options *ModelOptions) (*Model, error) {
	if c == nil || c.raw == nil {
		return nil, closed("context")
	}
	defer runtime.KeepAlive(c)
	o := given(options)
	call, err := begin(ctx, listen(listener{progress: o.Progress}))
	if err != nil {
		return nil, err
	}
	r := raw.NewModelOptions()
	defer raw.DeleteModelOptions(r)
	//blend:set model_options
	for _, lora := range o.Loras {
		scale := lora.Scale
		if scale == 0 {
			scale = 1
		}
		r.Add_lora(lora.Path, scale)
	}
	call.set(r)
	opened := raw.ModelOpen(c.raw, path, r, call.out)
	if err := call.end(); err != nil {
		return nil, err
	}
	return newModel(opened), nil
}

func newModel(r raw.Model) *Model {
	m := &Model{raw: r}
	runtime.SetFinalizer(m, func(m *Model) {
		r := m.raw
		go raw.DeleteModel(r) // gives much memory back
	})
	return m
}

// call makes a call of an opened model that cannot be cancelled.
func (m *Model) call(use func(r raw.Model, out raw.Outcome)) error {
	if m == nil || m.raw == nil {
		return closed("model")
	}
	defer runtime.KeepAlive(m)
	return simple(func(out raw.Outcome) { use(m.raw, out) })
}

// Info describes the model.
func (m *Model) Info() (info ModelInfo, err error) {
	err = m.call(func(r raw.Model, out raw.Outcome) { info = takenModelInfo(r.Info(out)) })
	return info, err
}

// Loras gives the LoRA adapters that it was opened with.
func (m *Model) Loras() ([]LoraInfo, error) {
	info, err := m.Info()
	if err != nil {
		return nil, err
	}
	list := make([]LoraInfo, info.Loras)
	for i := range list {
		err := m.call(func(r raw.Model, out raw.Outcome) { list[i] = takenLoraInfo(r.Lora(int64(i), out)) })
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// TemplateInfo tells what a chat template has a place for, and how calls of functions are written by it.
// The source is Jinja; "" is the model's own. Errors: ErrNotFound (there is none), ErrFormat, ErrUnsupported.
func (m *Model) TemplateInfo(source string) (info TemplateInfo, err error) {
	err = m.call(func(r raw.Model, out raw.Outcome) { info = takenTemplateInfo(r.Template_info(source, out)) })
	return info, err
}

// Tokenize gives the tokens of a text; bytes that are not UTF-8 become byte tokens.
func (m *Model) Tokenize(text string, flags TokenizeFlags) (tokens []int32, err error) {
	err = m.call(func(r raw.Model, out raw.Outcome) {
		tokens = taken[int32](r.Tokenize(text, uint(flags), out))
	})
	if err != nil {
		return nil, err
	}
	return tokens, nil
}

// Detokenize gives the text of tokens, possibly cut inside a UTF-8 sequence. Errors:
// ErrInvalidArgument (a token outside the vocabulary).
func (m *Model) Detokenize(tokens []int32, flags TokenizeFlags) (text string, err error) {
	err = m.call(func(r raw.Model, out raw.Outcome) { text = r.Detokenize(tokens, uint(flags), out) })
	return text, err
}

// PrecomputeOptions are options of Precompute and Find. The zero value has the defaults.
type PrecomputeOptions struct {
	// ChunkPrefix is prefilled before the chunk and not stored; part of the id. Give the Head of the
	// prompts that will hold the chunk.
	ChunkPrefix []int32
	// Contexts are passages, the most similar first. Each stands before the chunk in one of the
	// prefills. The record is contextual: it keeps the mean of the chunk's K and V over the prefills, and
	// not the passages. PrecomputeCorpus finds them.
	Contexts [][]int32
	// Predecessor is what stands directly before the chunk in the prompts that the record is for: the
	// chunk before it and what stands between. It follows ChunkPrefix and the passages, is not stored,
	// and is part of the id. A fuse takes the record where these tokens stand directly before the chunk.
	// Give other texts of such prompts in Contexts: if it is short, the chunk is prefilled after some of
	// them too.
	Predecessor []int32
	//blend:fields precompute_options
	// Progress is told the layers done; an error stops the call, which gives it back.
	Progress func(done, total int64) error
}

func (options *PrecomputeOptions) make() (PrecomputeOptions, raw.PrecomputeOptions) {
	o := given(options)
	r := raw.NewPrecomputeOptions()
	//blend:set precompute_options
	r.Set_chunk_prefix(o.ChunkPrefix)
	for _, passage := range o.Contexts {
		r.Add_context(passage)
	}
	r.Set_predecessor(o.Predecessor)
	return o, r
}

// Stored is what Precompute stored.
type Stored struct {
	ID      ChunkID
	Existed bool // it was in the store already: nothing was computed
}

// Precompute prefills one chunk and stores its K (before RoPE) and V. It is on disk when
// the call returns, unless options say Background. options may be nil. Errors: ErrInvalidArgument (no tokens, or one outside the
// vocabulary), ErrContextLength, ErrFull, ErrReadOnly, ErrIO, ErrNumeric, ErrCancelled.
func (m *Model) Precompute(ctx context.Context, s *Store, tokens []int32, options *PrecomputeOptions) (Stored, error) {
	stored, err := m.chunk(ctx, s, options, func(r raw.PrecomputeOptions, out raw.Outcome) raw.Stored {
		return m.raw.Precompute(s.raw, tokens, r, out)
	})
	return stored, err
}

// FindChunk gives the id of a chunk and whether the store has it, without counting the look-up. options
// (ChunkPrefix, Contexts, Predecessor, Tenant) as for Precompute, may be nil; with Contexts, whichever they are, it is the
// contextual record that is looked for. Errors: ErrInvalidArgument, ErrContextLength, ErrIO.
func (m *Model) FindChunk(s *Store, tokens []int32, options *PrecomputeOptions) (ChunkID, bool, error) {
	stored, err := m.chunk(context.Background(), s, options, func(r raw.PrecomputeOptions, out raw.Outcome) raw.Stored {
		return m.raw.Find_chunk(s.raw, tokens, r, out)
	})
	return stored.ID, stored.Existed, err
}

func (m *Model) chunk(ctx context.Context, s *Store, options *PrecomputeOptions,
	use func(raw.PrecomputeOptions, raw.Outcome) raw.Stored) (stored Stored, err error) {
	if m == nil || m.raw == nil {
		return stored, closed("model")
	}
	if s == nil || s.raw == nil {
		return stored, closed("store")
	}
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(s)
	set, r := options.make()
	defer raw.DeletePrecomputeOptions(r)
	c, err := begin(ctx, listen(listener{progress: set.Progress}))
	if err != nil {
		return stored, err
	}
	c.set(r)
	made := use(r, c.out)
	defer raw.DeleteStored(made)
	if err := c.end(); err != nil {
		return stored, err
	}
	return Stored{ID: ChunkID(made.GetId()), Existed: made.GetExisted()}, nil
}

// CheckLayer is a layer at which rows are chosen, and the share of the reused rows that goes on.
type CheckLayer struct {
	Layer int
	Ratio float64
}

// DefaultCheckLayers gives a schedule for gradual filtering: n check layers from first on, evenly
// spaced, with ratios that fall from about 1.5 ratio to 0.5 ratio; fewer where the model has fewer
// layers.
func (m *Model) DefaultCheckLayers(ratio float64, first, n int) (layers []CheckLayer, err error) {
	if n < 0 {
		return nil, invalid("%d check layers cannot be made", n)
	}
	err = m.call(func(r raw.Model, out raw.Outcome) {
		made := r.Default_check_layers(ratio, count(first), int64(n), out)
		defer raw.DeleteCheckLayers(made)
		for i := int64(0); i < made.Size(); i++ {
			layers = append(layers, CheckLayer{Layer: int(made.Layer(i)), Ratio: made.Ratio(i)})
		}
	})
	return layers, err
}

// Close lets the model go: its memory is free as soon as no call and no fusion needs it.
func (m *Model) Close() error {
	if m == nil || m.raw == nil {
		return nil
	}
	defer runtime.KeepAlive(m)
	m.raw.Close()
	return nil
}
