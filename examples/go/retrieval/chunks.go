// Package retrieval makes chunks of documents and finds those that a question is about: what stands
// in for a retriever of your own.
package retrieval

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"libblend.io/go/blend"
)

// Document is a text with a name.
type Document struct {
	Name string
	Text string
}

// Chunk is a piece of a document, small enough to be stored by itself.
type Chunk struct {
	Document string
	Text     string
	Tokens   []int32
}

// Examples is the folder of the examples: here, or above.
func Examples() string {
	for up := "."; len(up) < 32; up += "/.." {
		for _, folder := range []string{up, up + "/examples"} {
			if _, err := os.Stat(folder + "/models/blend-qa.gguf"); err == nil {
				return filepath.Clean(folder)
			}
		}
	}
	return "."
}

// ReadFolder reads the .txt and .md files of a folder, in the order of their names.
func ReadFolder(folder string) ([]Document, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var documents []Document
	for _, entry := range entries {
		if ext := filepath.Ext(entry.Name()); entry.IsDir() || (ext != ".txt" && ext != ".md") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		documents = append(documents, Document{entry.Name(), string(text)})
	}
	sort.SliceStable(documents, func(i, j int) bool {
		return filepath.Ext(documents[i].Name) == ".txt" && filepath.Ext(documents[j].Name) == ".md"
	})
	return documents, nil
}

var (
	blankLine = regexp.MustCompile(`\n\s*\n`)
	sentence  = regexp.MustCompile(`[.!?]\s+`)
)

// paragraphs are cut at blank lines.
func paragraphs(text string) []string {
	var out []string
	for _, part := range blankLine.Split(text, -1) {
		if words := strings.Fields(part); len(words) > 0 {
			out = append(out, strings.Join(words, " "))
		}
	}
	return out
}

func sentences(text string) []string {
	var out []string
	begin := 0
	for _, at := range sentence.FindAllStringIndex(text, -1) {
		out = append(out, text[begin:at[0]+1])
		begin = at[1]
	}
	return append(out, text[begin:])
}

// Chunks packs the paragraphs of a document, in order, into chunks of at most max tokens; a paragraph
// that is longer goes by sentences, and a sentence that is longer is cut between tokens.
func Chunks(model *blend.Model, document Document, max int) ([]Chunk, error) {
	fits := func(text string) (bool, error) {
		tokens, err := model.Tokenize(text, 0)
		return len(tokens) <= max, err
	}
	var pieces []string
	for _, paragraph := range paragraphs(document.Text) {
		whole, err := fits(paragraph + "\n")
		if err != nil {
			return nil, err
		}
		if whole {
			pieces = append(pieces, paragraph+"\n")
			continue
		}
		for _, s := range sentences(paragraph) {
			pieces = append(pieces, s+"\n")
		}
	}
	var texts []string
	packed := ""
	for _, piece := range pieces {
		whole, err := fits(packed + piece)
		if err != nil {
			return nil, err
		}
		if packed != "" && !whole {
			texts = append(texts, packed)
			packed = ""
		}
		packed += piece
	}
	if packed != "" {
		texts = append(texts, packed)
	}
	var chunks []Chunk
	for _, text := range texts {
		tokens, err := model.Tokenize(text, 0)
		if err != nil {
			return nil, err
		}
		if len(tokens) <= max {
			chunks = append(chunks, Chunk{document.Name, text, tokens})
			continue
		}
		for begin := 0; begin < len(tokens); begin += max {
			part := tokens[begin:]
			if len(part) > max {
				part = part[:max]
			}
			partText, err := model.Detokenize(part, 0)
			if err != nil {
				return nil, err
			}
			chunks = append(chunks, Chunk{document.Name, partText, part})
		}
	}
	return chunks, nil
}

// Question is what the model was trained to be asked with.
func Question(question string) string {
	return "Question: " + strings.TrimSpace(question) + "\nAnswer:"
}

// Store precomputes chunks after what prompts begin with, in the context of similar ones. It gives how many
// were new to the store.
func Store(ctx context.Context, model *blend.Model, store *blend.Store, chunks []Chunk) (int, error) {
	head, err := model.Tokenize("", blend.TokenizeBOS)
	if err != nil {
		return 0, err
	}
	corpus := make([]blend.CorpusChunk, len(chunks))
	for i, chunk := range chunks {
		corpus[i].Tokens = chunk.Tokens
	}
	records, err := model.PrecomputeCorpus(ctx, store, corpus, &blend.CorpusOptions{ChunkPrefix: head})
	stored := 0
	for _, record := range records {
		if !record.Existed {
			stored++
		}
	}
	return stored, err
}

// Prompt is BOS, the chunks, the question.
func Prompt(model *blend.Model, chunks []Chunk, question string) (blend.Prompt, error) {
	bos, err := model.Tokenize("", blend.TokenizeBOS)
	if err != nil {
		return nil, err
	}
	var prompt blend.Prompt
	if len(bos) > 0 {
		prompt = append(prompt, blend.Prefix(bos))
	}
	for _, chunk := range chunks {
		prompt = append(prompt, blend.Chunk(chunk.Tokens))
	}
	asked, err := model.Tokenize(Question(question), 0)
	if err != nil {
		return nil, err
	}
	return append(prompt, blend.Question(asked)), nil
}
