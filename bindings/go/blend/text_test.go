package blend_test

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"libblend.io/go/blend"
)

func emptyStore(t *testing.T) *blend.Store {
	t.Helper()
	s := must(blend.OpenStore(ctx, filepath.Join(t.TempDir(), "store"), nil))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// found fuses texts, none of which may be missing, and gives the number of segments found.
func found(t *testing.T, f *blend.Fusion, err error) int {
	t.Helper()
	fusion := must(f, err)(t)
	defer fusion.Close()
	return must(fusion.Info())(t).Hits
}

func TestTexts(t *testing.T) {
	s := emptyStore(t)
	fusion := must(model.FuseTexts(bg, s, blend.Documents(documents...), question, nil, nil))(t)
	defer fusion.Close()
	if text, _ := generated(t, fusion, nil); text != answer {
		t.Fatalf("the answer is %q", text)
	}
	ok(t, s.Flush())
	var others []string
	for _, document := range documents {
		others = append(others, " "+strings.TrimSpace(document)+"\r\n\n")
	}
	all := &blend.FuseOptions{OnMiss: blend.MissFail}
	f, err := model.FuseTexts(bg, s, blend.Documents(others...), question, nil, all)
	if n := found(t, f, err); n != len(documents)+1 {
		t.Fatalf("%d found", n)
	}
	made := must(model.TextPrompt(bg, blend.Documents(documents...), question, nil))(t)
	if !reflect.DeepEqual(made, prompt(t)) {
		t.Fatal("the prompt of texts is not that of segments")
	}
}

func TestVectorsOfTexts(t *testing.T) {
	made := must(model.Embed(bg, documents, nil))(t)
	if len(made) != len(documents) || len(made[0]) != must(model.Info())(t).DModel {
		t.Fatalf("%d vectors", len(made))
	}
	var length float64
	for _, value := range made[1] {
		length += float64(value) * float64(value)
	}
	if length < 1-1e-5 || length > 1+1e-5 {
		t.Fatalf("a length of %g", length)
	}
	few := &blend.EmbedOptions{Pooling: blend.PoolingLast, Dimensions: 5, Unnormalized: true}
	var tokens [][]int32
	for _, document := range documents {
		tokens = append(tokens, must(model.Tokenize(document, blend.TokenizeBOS))(t))
	}
	texts := must(model.Embed(bg, documents, few))(t)
	if len(texts[0]) != 5 || !reflect.DeepEqual(texts, must(model.EmbedTokens(bg, tokens, few))(t)) {
		t.Fatal("tokens have other vectors than their texts")
	}
	if none := must(model.Embed(bg, nil, nil))(t); len(none) != 0 {
		t.Fatal("vectors of nothing")
	}
	if _, err := model.EmbedTokens(bg, [][]int32{{}}, nil); !errors.Is(err, blend.ErrInvalidArgument) {
		t.Fatal(err)
	}
	done, cancel := context.WithCancel(bg)
	cancel()
	if _, err := model.Embed(done, documents, nil); !errors.Is(err, blend.ErrCancelled) {
		t.Fatal(err)
	}
}

func TestTextsOfAConversation(t *testing.T) {
	s := emptyStore(t)
	texts := &blend.TextOptions{System: "Be brief.", TemplateSource: chatTemplate, Tenant: "ada"}
	given := []blend.Document{{Text: documents[0], Title: "one"}, {Text: documents[1]}}
	records := must(model.PrecomputeTexts(bg, s, given, texts, &blend.CorpusOptions{HeadOnly: true}))(t)
	if len(records) != 2 || records[0].Existed {
		t.Fatalf("%v", records)
	}
	if again := must(model.PrecomputeTexts(bg, s, given, texts, &blend.CorpusOptions{HeadOnly: true}))(t); !again[1].Existed {
		t.Fatalf("%v", again)
	}
	all := &blend.FuseOptions{OnMiss: blend.MissFail}
	turns := []blend.ChatMessage{{Role: "user", Content: question}, {Role: "assistant", Content: "An anchor."},
		{Role: "user", Content: "Where?"}}
	// The first turn has a prefix too, of all that stands before the documents.
	f, err := model.FuseMessages(bg, s, turns[:1], given, texts, all)
	if n := found(t, f, err); n != 3 {
		t.Fatalf("%d found in a first turn", n)
	}
	f, err = model.FuseMessages(bg, s, turns, given, texts, all)
	if n := found(t, f, err); n != 2 {
		t.Fatalf("%d found in a later turn", n)
	}
	if _, err := model.FuseTexts(bg, s, given, question, nil, all); !errors.Is(err, blend.ErrNotFound) {
		t.Fatalf("another head: %v", err)
	}
}

func TestTextsThatAreWrong(t *testing.T) {
	_, err := model.FuseTexts(bg, nil, blend.Documents("a", " \n"), question, nil, nil)
	if !errors.Is(err, blend.ErrInvalidArgument) || !strings.Contains(err.Error(), "document 1 has no text") {
		t.Fatal(err)
	}
	if _, err := model.FuseTexts(bg, nil, blend.Documents("a\x00b"), question, nil, nil); !errors.Is(err, blend.ErrInvalidArgument) {
		t.Fatal(err)
	}
	if _, err := model.FuseMessages(bg, nil, nil, nil, nil, nil); err == nil {
		t.Fatal("no messages, and no error")
	}
	gone, cancel := context.WithCancel(bg)
	cancel()
	if _, err := model.FuseTexts(gone, nil, blend.Documents("a"), question, nil, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := model.PrecomputeTexts(bg, nil, nil, nil, nil); !errors.Is(err, blend.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := (*blend.Model)(nil).TextPrompt(bg, nil, question, nil); !errors.Is(err, blend.ErrClosed) {
		t.Fatal(err)
	}
}
