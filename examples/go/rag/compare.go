package main

import (
	"context"
	"math"
	"sort"
	"strings"
	"time"

	"libblend.io/go/blend"
)

// line is of one policy. Agreement is the share of full prefill's answer tokens that are also the
// likeliest here; kl is of the distributions at those tokens, in nats.
type line struct {
	name          string
	ms            float64 // median time to the first token
	selected      int     // rows
	agreement, kl float64
	answer        string
}

const repeats = 3

func compare(ctx context.Context, model *blend.Model, store *blend.Store, prompt blend.Prompt, ratio float64, maxTokens int) ([]line, error) {
	var lines []line
	var reference []int32    // full prefill's answer
	var expected [][]float64 // and its log probabilities there
	for _, policy := range []struct {
		name    string
		options blend.FuseOptions
	}{
		{"full", blend.FuseOptions{Policy: blend.PolicyFull}},
		{"reuse", blend.FuseOptions{Policy: blend.PolicyReuse}},
		{"hkvd", blend.FuseOptions{Policy: blend.PolicyHKVD, Ratio: ratio}},
	} {
		options := policy.options
		options.ReserveTokens = maxTokens
		l, tokens, err := timed(ctx, model, store, prompt, &options)
		if err != nil {
			return nil, err
		}
		l.name = policy.name
		if reference == nil {
			reference = tokens
			if len(tokens) == 0 {
				info, err := model.Info()
				if err != nil {
					return nil, err
				}
				reference = []int32{info.EOSToken}
			}
		}
		logs, err := follow(ctx, model, store, prompt, &options, reference)
		if err != nil {
			return nil, err
		}
		if expected == nil {
			expected = logs
		}
		for i := range logs {
			if argmax(logs[i]) == argmax(expected[i]) {
				l.agreement += 1 / float64(len(logs))
			}
			for j, p := range expected[i] {
				l.kl += math.Exp(p) * (p - logs[i][j]) / float64(len(logs))
			}
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// timed fuses a few times and answers after the last.
func timed(ctx context.Context, model *blend.Model, store *blend.Store, prompt blend.Prompt, options *blend.FuseOptions) (l line, tokens []int32, err error) {
	var times []time.Duration
	for i := 0; i < repeats; i++ {
		fusion, err := model.Fuse(ctx, store, prompt, options)
		if err != nil {
			return l, nil, err
		}
		defer fusion.Close()
		info, err := fusion.Info()
		if err != nil {
			return l, nil, err
		}
		times = append(times, info.TTFT)
		l.selected = info.RowsSelected
		if i+1 < repeats {
			continue
		}
		_, err = fusion.Generate(ctx, &blend.GenerateOptions{MaxTokens: options.ReserveTokens}, func(token blend.Token) error {
			tokens = append(tokens, token.ID)
			return nil
		})
		if err != nil {
			return l, nil, err
		}
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	l.ms = float64(times[len(times)/2]) / float64(time.Millisecond)
	text, err := model.Detokenize(tokens, 0)
	l.answer = strings.TrimSpace(text)
	return l, tokens, err
}

// follow gives the log probabilities before each of the tokens, [len(tokens)][vocabulary].
func follow(ctx context.Context, model *blend.Model, store *blend.Store, prompt blend.Prompt, options *blend.FuseOptions, tokens []int32) ([][]float64, error) {
	fusion, err := model.Fuse(ctx, store, prompt, options)
	if err != nil {
		return nil, err
	}
	defer fusion.Close()
	var logs [][]float64
	for _, token := range tokens {
		if err := fusion.Logits(func(logits []float32) error {
			logs = append(logs, logSoftmax(logits))
			return nil
		}); err != nil {
			return nil, err
		}
		if err := fusion.Decode(ctx, []int32{token}); err != nil {
			return nil, err
		}
	}
	return logs, nil
}

func logSoftmax(logits []float32) []float64 {
	out := make([]float64, len(logits))
	most := math.Inf(-1)
	for i, v := range logits {
		out[i] = float64(v)
		most = math.Max(most, out[i])
	}
	sum := 0.0
	for _, v := range out {
		sum += math.Exp(v - most)
	}
	for i := range out {
		out[i] -= most + math.Log(sum)
	}
	return out
}

func argmax(values []float64) int {
	best := 0
	for i, v := range values {
		if v > values[best] {
			best = i
		}
	}
	return best
}
