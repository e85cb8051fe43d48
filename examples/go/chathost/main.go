// Messages, documents and tools in, an answer out (examples/README.md): chathost MODEL STORE_DIR PORT [TEMPLATE]
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
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
		members
	} `json:"messages"`
	Documents []string          `json:"documents"`
	Tools     []json.RawMessage `json:"tools"`
	Schema    json.RawMessage   `json:"schema"`
	MaxTokens int               `json:"max_tokens"`
}

// What a message has besides its words.
type members struct {
	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
}

// How the prompt is written. With tools, its answer must be a call of one of them.
func (h *host) prompt(asked *chat) (*blend.TextOptions, error) {
	texts := *h.texts
	if len(asked.Tools) > 0 {
		tools, err := json.Marshal(asked.Tools)
		if err != nil {
			return nil, err
		}
		texts.Tools, texts.MustCall = string(tools), true
	}
	return &texts, nil
}

// What the answer must be: a call of one of the tools, or JSON of a schema; nil: any text.
func (h *host) grammar(r *http.Request, asked *chat, texts *blend.TextOptions) (*blend.Grammar, error) {
	if texts.MustCall {
		return blend.OpenGrammar(r.Context(), h.model, &blend.GrammarOptions{Language: blend.GrammarCall, Text: texts.Tools,
			TemplateSource: texts.TemplateSource})
	}
	if asked.Schema == nil || string(asked.Schema) == "null" {
		return nil, nil
	}
	return blend.OpenGrammar(r.Context(), h.model, &blend.GrammarOptions{Language: blend.GrammarJsonSchema, Text: string(asked.Schema)})
}

func (h *host) fuse(r *http.Request, asked *chat, texts *blend.TextOptions) (*blend.Fusion, error) {
	var messages []blend.ChatMessage
	for _, m := range asked.Messages {
		more, err := json.Marshal(m.members)
		if err != nil {
			return nil, err
		}
		messages = append(messages, blend.ChatMessage{Role: m.Role, Content: m.Content, Members: string(more)})
	}
	return h.model.FuseMessages(r.Context(), h.store, messages, blend.Documents(asked.Documents...), texts, nil)
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked := chat{MaxTokens: 64}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&asked)
	var texts *blend.TextOptions
	if err == nil {
		texts, err = h.prompt(&asked)
	}
	var grammar *blend.Grammar
	if err == nil {
		grammar, err = h.grammar(r, &asked, texts)
		defer grammar.Close()
	}
	var fusion *blend.Fusion
	if err == nil {
		fusion, err = h.fuse(r, &asked, texts)
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
	_, err = fusion.Generate(r.Context(), &blend.GenerateOptions{MaxTokens: asked.MaxTokens, Grammar: grammar}, func(token blend.Token) error {
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
