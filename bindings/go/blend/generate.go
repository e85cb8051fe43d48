package blend

import (
	"context"
	"errors"
	"runtime"
	"unsafe"

	"libblend.io/go/internal/raw"
)

// GenerateOptions are options of Generate. The zero value has the defaults.
type GenerateOptions struct {
	//blend:fields generate_options
	StopTokens []int32           // besides EOS
	Stop       []string          // the text ends before the first of these, wherever tokens end
	LogitBias  map[int32]float32 // added to the logits of these tokens; -Inf: never this token
	// Logits is called ahead of every token with the logits it is sampled from, after penalties and bias,
	// to be changed; -Inf forbids a token. The slice is valid during the call. An error, or Stop, ends
	// the generation as one of each does.
	Logits func(logits []float32) error
	// Grammar is what the text must be; it has the last word on every token. ByStopToken says then
	// whether the text is complete.
	Grammar *Grammar
}

// Token is a generated token and the text that it completes: whole UTF-8 sequences, or "".
// While a stop text may have begun the text comes with a later token, or with ID -1 (no token, not counted)
// if the end is next.
type Token struct {
	ID       int32
	Text     string
	Logprobs []Logprob // with TopLogprobs: its own, then those of the likeliest, falling
}

// Logprob is the natural logarithm of a token's probability, as the model gave it: before penalties,
// bias and temperature.
type Logprob struct {
	ID      int32
	Logprob float32
}

// Generation is how a generation ended.
type Generation struct {
	Tokens      int  // that were reported
	ByStopToken bool // by EOS, a stop token or a stop text, which is not reported; else by MaxTokens or the rows' end
}

// Generate generates from the fusion's logits and appends what it generates, so that a later call
// continues. each is called with every token before it is appended, on this goroutine; the next token
// is computed after it has returned. If it returns an error the generation ends with that error, or
// with none for Stop, and the token is not appended. each and options may be nil. Errors:
// ErrCancelled, ErrNumeric, ErrInvalidArgument, ErrInUse.
func (f *Fusion) Generate(ctx context.Context, options *GenerateOptions, each func(Token) error) (Generation, error) {
	var end Generation
	if f == nil || f.raw == nil {
		return end, closed("fusion")
	}
	defer runtime.KeepAlive(f)
	c, err := begin(ctx, nil)
	if err != nil {
		return end, err
	}
	defer c.free()
	o := options.make(c.cancel)
	defer raw.DeleteGenerateOptions(o)
	if options != nil && options.Grammar != nil {
		if options.Grammar.raw == nil {
			return end, closed("grammar")
		}
		defer runtime.KeepAlive(options.Grammar)
		o.Set_grammar(options.Grammar.raw, c.out)
		if err := c.failure(); err != nil {
			return end, err
		}
	}
	stream := f.raw.Generate(o, c.out)
	if err := c.failure(); err != nil {
		return end, err
	}
	defer raw.DeleteTokenStream(stream) // ends the generation, if it has not ended
	for {
		switch stream.Next(-1, c.out) {
		case 1:
			end.Tokens = int(stream.N_tokens())
			if each == nil {
				continue
			}
			token := Token{ID: int32(stream.Token()), Text: stream.Text()}
			for i := 0; i < int(stream.N_logprobs()); i++ {
				token.Logprobs = append(token.Logprobs, Logprob{int32(stream.Logprob_token(int64(i))), stream.Logprob(int64(i))})
			}
			if err := recovered(func() error { return each(token) }); err != nil {
				if errors.Is(err, Stop) {
					err = nil
				}
				return end, err
			}
		case 3:
			logits := unsafe.Slice((*float32)(stream.Logits()), int(stream.N_logits()))
			if err := recovered(func() error { return options.Logits(logits) }); err != nil {
				if errors.Is(err, Stop) {
					err = nil
				}
				return end, err
			}
		case 0:
			end.ByStopToken = stream.By_stop_token()
			return end, nil
		default:
			return end, c.failure()
		}
	}
}

func (o *GenerateOptions) make(cancel raw.Cancel) raw.GenerateOptions {
	r := raw.NewGenerateOptions()
	r.Set_cancel(cancel)
	if o == nil {
		return r
	}
	//blend:set generate_options
	for _, token := range o.StopTokens {
		r.Add_stop_token(int(token))
	}
	for _, text := range o.Stop {
		r.Add_stop_text(text)
	}
	for token, bias := range o.LogitBias {
		r.Add_logit_bias(int(token), bias)
	}
	r.Set_shows_logits(o.Logits != nil)
	return r
}
