package blend

import (
	"context"
	"errors"
	"runtime"

	"libblend/internal/raw"
)

// GenerateOptions are options of Generate. The zero value has the defaults.
type GenerateOptions struct {
	//blend:fields generate_options
	StopTokens []int32 // besides EOS
}

// Token is a generated token and the text that it completes: whole UTF-8 sequences, or "".
type Token struct {
	ID   int32
	Text string
}

// Generation is how a generation ended.
type Generation struct {
	Tokens      int  // that were reported
	ByStopToken bool // by EOS or a stop token, which is not reported; else by MaxTokens or the rows' end
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
	stream := f.raw.Generate(o, c.out)
	if err := c.failure(); err != nil {
		return end, err
	}
	defer raw.DeleteTokenStream(stream) // ends the generation, if it has not ended
	for {
		switch stream.Next(-1, c.out) {
		case 1:
			end.Tokens++
			if each == nil {
				continue
			}
			token := Token{ID: int32(stream.Token()), Text: stream.Text()}
			if err := recovered(func() error { return each(token) }); err != nil {
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
	return r
}
