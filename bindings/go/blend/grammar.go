package blend

import (
	"context"
	"runtime"

	"libblend.io/go/internal/raw"
)

// Grammar is what a generated text must be, compiled for a model's tokenizer, for any number of
// generations. See the package's notes on goroutines and lifetime.
type Grammar struct {
	raw raw.Grammar
}

// GrammarOptions are options of OpenGrammar. The zero value is any JSON object.
type GrammarOptions struct {
	//blend:fields grammar_options
}

// OpenGrammar compiles a grammar. options may be nil. Errors: ErrInvalidArgument (the text cannot be used,
// or nothing satisfies it), ErrUnsupported (names what of it cannot be kept; or this build has no
// grammars), ErrCancelled; of a call also ErrNotFound (the model has no chat template) and ErrFormat (it
// cannot be parsed).
func OpenGrammar(ctx context.Context, m *Model, options *GrammarOptions) (*Grammar, error) {
	if m == nil || m.raw == nil {
		return nil, closed("model")
	}
	defer runtime.KeepAlive(m)
	o := given(options)
	c, err := begin(ctx, nil)
	if err != nil {
		return nil, err
	}
	r := raw.NewGrammarOptions()
	defer raw.DeleteGrammarOptions(r)
	//blend:set grammar_options
	c.set(r)
	opened := raw.GrammarOpen(m.raw, r, c.out)
	if err := c.end(); err != nil {
		return nil, err
	}
	grammar := &Grammar{raw: opened}
	runtime.SetFinalizer(grammar, func(g *Grammar) { raw.DeleteGrammar(g.raw) })
	return grammar, nil
}

// Close frees the grammar once the last generation that has it ends.
func (g *Grammar) Close() error {
	if g == nil || g.raw == nil {
		return nil
	}
	defer runtime.KeepAlive(g)
	g.raw.Close()
	return nil
}
