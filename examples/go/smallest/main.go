// Documents and a question in, an answer out: smallest [MODEL.gguf [STORE_DIR]]
package main

import (
	"context"
	"fmt"
	"libblend.io/go/blend"
	"os"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	ctx, set := context.Background(), []string{"examples/models/blend-qa.gguf", "blend-store"}
	copy(set, os.Args[1:])
	c := must(blend.NewContext(nil))
	model := must(blend.OpenModel(ctx, c, set[0], nil))
	store := must(blend.OpenStore(c, set[1], nil))
	defer store.Close()
	documents := blend.Documents("Hugo Rask works at the south inn.", "There he guards the square anchor.")
	fusion := must(model.FuseTexts(ctx, store, documents, "What does Hugo Rask guard?", nil, nil))
	must(fusion.Generate(ctx, nil, func(token blend.Token) error { _, err := fmt.Print(token.Text); return err }))
	fmt.Println()
}
