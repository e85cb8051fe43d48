package blend_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"libblend.io/go/blend"
)

// What the tests share: the small model of the examples, its documents, a store.
var (
	bg        = context.Background()
	examples  string
	modelPath string
	documents []string
	question  string
	ctx       *blend.Context
	model     *blend.Model
	store     *blend.Store
	bos       []int32
)

const answer = "square anchor"

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if examples = os.Getenv("BLEND_EXAMPLES"); examples == "" {
		return 1, errors.New("BLEND_EXAMPLES names the folder examples of the repository")
	}
	modelPath = filepath.Join(examples, "models", "blend-qa.gguf")
	files, _ := filepath.Glob(filepath.Join(examples, "data", "documents", "*.txt"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 1, err
		}
		documents = append(documents, string(text))
	}
	asked, err := os.ReadFile(filepath.Join(examples, "data", "question.txt"))
	if err != nil {
		return 1, err
	}
	question = strings.TrimSpace(string(asked))
	folder, err := os.MkdirTemp("", "blend-go")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(folder)
	if ctx, err = blend.NewContext(&blend.ContextOptions{Threads: 1}); err != nil {
		return 1, err
	}
	if model, err = blend.OpenModel(bg, ctx, modelPath, nil); err != nil {
		return 1, err
	}
	if store, err = blend.OpenStore(ctx, filepath.Join(folder, "store"), nil); err != nil {
		return 1, err
	}
	if bos, err = model.Tokenize("", blend.TokenizeBOS); err != nil {
		return 1, err
	}
	code := m.Run()
	for _, closing := range []func() error{store.Close, model.Close, ctx.Close} {
		if err := closing(); err != nil {
			return 1, err
		}
	}
	return code, nil
}

func must[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tokens(t testing.TB, text string) []int32 {
	t.Helper()
	return must(model.Tokenize(text, 0))(t)
}

func prompt(t testing.TB) blend.Prompt {
	t.Helper()
	p := blend.Prompt{blend.Prefix(bos)}
	for _, document := range documents {
		p = append(p, blend.Chunk(tokens(t, document)))
	}
	return append(p, blend.Question(tokens(t, "Question: "+question+"\nAnswer:")))
}

// fuse fuses the documents and the question; the fusion is closed with the test.
func fuse(t testing.TB, options *blend.FuseOptions) *blend.Fusion {
	t.Helper()
	var o blend.FuseOptions
	if options != nil {
		o = *options
	}
	if o.OnMiss == 0 {
		o.OnMiss = blend.MissPrecompute // at once what the default leaves for idle time
	}
	f := must(model.Fuse(bg, store, prompt(t), &o))(t)
	t.Cleanup(func() { f.Close() })
	return f
}

func generated(t testing.TB, f *blend.Fusion, options *blend.GenerateOptions) (string, blend.Generation) {
	t.Helper()
	var text strings.Builder
	end := must(f.Generate(bg, options, func(token blend.Token) error {
		text.WriteString(token.Text)
		return nil
	}))(t)
	return strings.TrimSpace(text.String()), end
}

func argmax(values []float32) int32 {
	best := 0
	for i, v := range values {
		if v > values[best] {
			best = i
		}
	}
	return int32(best)
}

// given is a text of options that tell "" from none.
func given(text string) *string { return &text }
