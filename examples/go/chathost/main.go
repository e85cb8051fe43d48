// Messages and documents in, an answer out (examples/README.md): chathost MODEL STORE_DIR PORT [TEMPLATE]
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"libblend.io/go/blend"
)

type host struct {
	model *blend.Model
	store *blend.Store
	texts *blend.TextOptions
}

type chat struct {
	Messages  []blend.ChatMessage `json:"messages"`
	Documents []string            `json:"documents"`
	MaxTokens int                 `json:"max_tokens"`
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked := chat{MaxTokens: 64}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&asked)
	var fusion *blend.Fusion
	if err == nil {
		fusion, err = h.model.FuseMessages(r.Context(), h.store, asked.Messages, blend.Documents(asked.Documents...), h.texts, nil)
	}
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // the client has gone, or has it
		return
	}
	defer fusion.Close()
	w.Header().Set("Content-Type", "text/event-stream")
	// A client that goes away ends its generation: by the request's context, or by the failing write.
	_, err = fusion.Generate(r.Context(), &blend.GenerateOptions{MaxTokens: asked.MaxTokens}, func(token blend.Token) error {
		return event(w, "", map[string]string{"text": token.Text})
	})
	if err != nil {
		return
	}
	if info, err := fusion.Info(); err == nil {
		_ = event(w, "event: done\n", map[string]any{"rows": info.Rows, "reused": info.RowsReused,
			"ttft_ms": float64(info.TTFT) / float64(time.Millisecond)})
	}
}

func event(w http.ResponseWriter, name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%sdata: %s\n\n", name, data)
	w.(http.Flusher).Flush()
	return err
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	c := must(blend.NewContext(&blend.ContextOptions{Log: func(r blend.LogRecord) { log.Print(r.Message, " ", r.Args()) }}))
	h := &host{model: must(blend.OpenModel(nil, c, os.Args[1], nil)), store: must(blend.OpenStore(c, os.Args[2], nil)),
		texts: &blend.TextOptions{}}
	if len(os.Args) > 4 {
		h.texts.TemplateSource = string(must(os.ReadFile(os.Args[4])))
	}
	listener := must(net.Listen("tcp", "127.0.0.1:"+os.Args[3]))
	fmt.Printf("listening on http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, h))
}
