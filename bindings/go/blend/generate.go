package blend

import (
	"context"
	"errors"
	"runtime"

	"libblend/internal/raw"
)

// GenerateOptions are options of Generate. The zero value has the defaults.
type GenerateOptions struct {
	MaxTokens   int     // 0: 128; fewer if the reserved rows end sooner
	Temperature float64 // 0: greedy
	TopP        float64 // 0: off
	TopK        int     // 0: off
	IgnoreEOS   bool    // generate past EOS
	Seed        uint64  // same seed, same tokens
	StopTokens  []int32 // besides EOS
	Threads     int     // the most that compute at a time; 0: as many as the fusion has
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
// continues. each is told every token before it is appended, on this goroutine; nothing is computed
// that it does not wait for. An error of it ends the generation and comes back, Stop without an
// error; the token that it was told then is not appended. each may be nil, as may options. Errors:
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
	if o.MaxTokens != 0 {
		r.SetMax_tokens(count(o.MaxTokens))
	}
	r.SetN_threads(count(o.Threads))
	r.SetTemperature(float32(o.Temperature))
	if o.TopP != 0 {
		r.SetTop_p(float32(o.TopP))
	}
	r.SetTop_k(count(o.TopK))
	r.SetIgnore_eos(flag(o.IgnoreEOS))
	r.SetSeed(o.Seed)
	for _, token := range o.StopTokens {
		r.Add_stop_token(int(token))
	}
	return r
}
