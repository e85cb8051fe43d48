// The main job of libblend: precompute, fuse, generate.
//
//	go run ./quickstart [MODEL.gguf [STORE_DIR [QUESTION]]]
//
// Five passages stand for a corpus. Their KV caches are computed once, each after what the prompt begins
// with and in the context of similar passages, and kept in STORE_DIR; the prompt made of them and the question is then fused from the store, and the answer is
// streamed. Run it twice with a STORE_DIR: the second time nothing is stored again.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"examples/retrieval"
	"libblend.io/go/blend"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	examples := retrieval.Examples()
	passages, err := retrieval.ReadFolder(examples + "/data/documents")
	if err != nil {
		return err
	}
	question, err := os.ReadFile(examples + "/data/question.txt")
	if err != nil {
		return err
	}
	set := []string{examples + "/models/blend-qa.gguf", "", strings.TrimSpace(string(question))}
	copy(set, args)
	if set[1] == "" {
		if set[1], err = os.MkdirTemp("", "blend"); err != nil {
			return err
		}
		defer os.RemoveAll(set[1])
	}

	c, err := blend.NewContext(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	model, err := blend.OpenModel(ctx, c, set[0], nil)
	if err != nil {
		return err
	}
	defer model.Close()
	store, err := blend.OpenStore(c, set[1], nil)
	if err != nil {
		return err
	}
	defer store.Close()

	var documents []blend.Document
	for _, passage := range passages {
		documents = append(documents, blend.Document{Text: passage.Text})
	}
	// A fuse does so by itself, one passage at a time, with those that it does not find; all of them at once serve
	// each other as context.
	records, err := model.PrecomputeTexts(ctx, store, documents, nil, nil)
	if err != nil {
		return err
	}
	for _, record := range records {
		state := "stored"
		if record.Existed {
			state = "was there"
		}
		fmt.Println(record.ID[:16], state)
	}

	fusion, err := model.FuseTexts(ctx, store, documents, set[2], nil, &blend.FuseOptions{ReserveTokens: 64})
	if err != nil {
		return err
	}
	defer fusion.Close()
	_, err = fusion.Generate(ctx, &blend.GenerateOptions{MaxTokens: 64}, func(token blend.Token) error {
		_, err := fmt.Print(token.Text)
		return err
	})
	if err != nil {
		return err
	}
	info, err := fusion.Info()
	if err != nil {
		return err
	}
	fmt.Printf("\n\nfirst token after %.2f ms: %d rows, %d from the store, %d of them recomputed\n",
		float64(info.TTFT)/float64(time.Millisecond), info.Rows, info.RowsReused, info.RowsSelected)
	return nil
}
