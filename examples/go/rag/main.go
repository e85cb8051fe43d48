// Retrieval-augmented generation: documents in, an answer out, and what fusing saved.
//
//	go run ./rag [-docs FOLDER] [-question TEXT] [-model MODEL.gguf] [-store DIR]
//
// The table compares three ways to the first token of the same prompt: full prefill, the stored caches
// as they are, and those with the rows of highest KV deviation recomputed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"examples/retrieval"
	"libblend.io/go/blend"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	examples := retrieval.Examples()
	modelPath := flag.String("model", examples+"/models/blend-qa.gguf", "a GGUF file")
	docs := flag.String("docs", examples+"/data/documents", "a folder of .txt and .md files")
	question := flag.String("question", "", "what is asked")
	storePath := flag.String("store", "", "kept between runs; a temporary folder without it")
	chunkTokens := flag.Int("chunk-tokens", 96, "of a chunk, at most")
	top := flag.Int("top", 6, "chunks in the prompt")
	ratio := flag.Float64("ratio", 0.15, "share of the reused rows that is recomputed")
	maxTokens := flag.Int("max-tokens", 32, "of the answer")
	flag.Parse()
	if *question == "" {
		asked, err := os.ReadFile(examples + "/data/question.txt")
		if err != nil {
			return err
		}
		*question = strings.TrimSpace(string(asked))
	}
	if *storePath == "" {
		folder, err := os.MkdirTemp("", "blend")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		*storePath = folder
	}
	documents, err := retrieval.ReadFolder(*docs)
	if err != nil {
		return err
	}
	if len(documents) == 0 {
		return fmt.Errorf("no .txt or .md files in %s", *docs)
	}

	c, err := blend.NewContext(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	model, err := blend.OpenModel(ctx, c, *modelPath, nil)
	if err != nil {
		return err
	}
	defer model.Close()
	store, err := blend.OpenStore(c, *storePath, nil)
	if err != nil {
		return err
	}
	defer store.Close()

	var index retrieval.BM25
	for _, document := range documents {
		chunks, err := retrieval.Chunks(model, document, *chunkTokens)
		if err != nil {
			return err
		}
		for _, chunk := range chunks {
			index.Add(chunk)
		}
	}
	stored, err := retrieval.Store(ctx, model, store, index.Chunks)
	if err != nil {
		return err
	}
	fmt.Printf("%d documents, %d chunks, %d stored now\n", len(documents), len(index.Chunks), stored)

	found := index.Best(*question, *top)
	fmt.Println("found in", strings.Join(names(found), ", "))
	prompt, err := retrieval.Prompt(model, found, *question)
	if err != nil {
		return err
	}
	fmt.Printf("\n%s\n", *question)
	if err := answer(ctx, model, store, prompt, *ratio, *maxTokens); err != nil {
		return err
	}
	lines, err := compare(ctx, model, store, prompt, *ratio, *maxTokens)
	if err != nil {
		return err
	}
	fmt.Printf("%-8s %8s %11s %10s %8s  answer\n", "policy", "TTFT ms", "recomputed", "agreement", "KL")
	for _, l := range lines {
		fmt.Printf("%-8s %8.2f %11d %9.0f%% %8.4f  %s\n", l.name, l.ms, l.selected, 100*l.agreement, l.kl, l.answer)
	}
	return nil
}

func names(chunks []retrieval.Chunk) []string {
	var list []string
	for _, chunk := range chunks {
		if len(list) == 0 || list[len(list)-1] != chunk.Document {
			list = append(list, chunk.Document)
		}
	}
	return list
}

func answer(ctx context.Context, model *blend.Model, store *blend.Store, prompt blend.Prompt, ratio float64, maxTokens int) error {
	fusion, err := model.Fuse(ctx, store, prompt, &blend.FuseOptions{Ratio: ratio, ReserveTokens: maxTokens})
	if err != nil {
		return err
	}
	defer fusion.Close()
	_, err = fusion.Generate(ctx, &blend.GenerateOptions{MaxTokens: maxTokens}, func(token blend.Token) error {
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
	fmt.Printf("\n\n%d rows, %d of them from the store\n\n", info.Rows, info.RowsReused)
	return nil
}
