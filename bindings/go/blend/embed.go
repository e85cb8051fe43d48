package blend

import (
	"context"
	"runtime"

	"libblend.io/go/internal/raw"
)

// EmbedOptions are options of Embed. The zero value has the defaults.
type EmbedOptions struct {
	//blend:fields embed_options
	// Progress is told the texts done; an error stops the call, which gives it back.
	Progress func(done, total int64) error
}

// Embed gives the vector of each text, by which documents are found. What the tokenizer puts around a text is put
// around each; instructions that the model wants before a question or a document are the caller's. options may be
// nil. Errors: ErrInvalidArgument (a text without tokens), ErrContextLength (names the text), ErrUnsupported (the
// file asks for a pooling that is not known), ErrNumeric, ErrCancelled.
func (m *Model) Embed(ctx context.Context, texts []string, options *EmbedOptions) ([][]float32, error) {
	return m.embed(ctx, len(texts), options, func(inputs raw.EmbedInputs) {
		for _, text := range texts {
			inputs.Add_text(text)
		}
	})
}

// EmbedTokens does the same with texts that are tokens already; nothing is put around them.
func (m *Model) EmbedTokens(ctx context.Context, texts [][]int32, options *EmbedOptions) ([][]float32, error) {
	return m.embed(ctx, len(texts), options, func(inputs raw.EmbedInputs) {
		for _, tokens := range texts {
			inputs.Add_tokens(tokens)
		}
	})
}

func (m *Model) embed(ctx context.Context, n int, options *EmbedOptions, fill func(raw.EmbedInputs)) ([][]float32, error) {
	if m == nil || m.raw == nil {
		return nil, closed("model")
	}
	defer runtime.KeepAlive(m)
	o := given(options)
	r := raw.NewEmbedOptions()
	defer raw.DeleteEmbedOptions(r)
	//blend:set embed_options
	inputs := raw.NewEmbedInputs()
	defer raw.DeleteEmbedInputs(inputs)
	fill(inputs)
	c, err := begin(ctx, listen(listener{progress: o.Progress}))
	if err != nil {
		return nil, err
	}
	c.set(r)
	values := taken[float32](m.raw.Embed(inputs, r, c.out))
	if err := c.end(); err != nil {
		return nil, err
	}
	vectors := make([][]float32, n)
	for i := range vectors {
		width := len(values) / n
		vectors[i] = values[i*width : (i+1)*width : (i+1)*width]
	}
	return vectors, nil
}
