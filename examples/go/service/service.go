package main

import (
	"context"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"

	"examples/retrieval"
	"libblend.io/go/blend"
)

const chunkTokens = 96

// bad is a request that cannot be served.
type bad struct {
	status  int
	message string
}

func (b bad) Error() string { return b.message }

type route struct {
	path string
	code int
}

// service is what the requests share. The library's objects are for all goroutines; the rest has a
// lock.
type service struct {
	model *blend.Model
	store *blend.Store

	mutex     sync.Mutex
	index     retrieval.BM25
	documents map[string]bool
	requests  map[route]int
	tokens    int
	ttft      time.Duration
	answers   int
}

func newService(model *blend.Model, store *blend.Store) *service {
	return &service{model: model, store: store, documents: map[string]bool{}, requests: map[route]int{}}
}

type added struct {
	Name   string `json:"name"`
	Chunks int    `json:"chunks"`
	Stored int    `json:"stored"`
}

func (s *service) add(ctx context.Context, document retrieval.Document) (added, error) {
	done := added{Name: document.Name}
	chunks, err := retrieval.Chunks(s.model, document, chunkTokens)
	if err != nil {
		return done, err
	}
	done.Chunks = len(chunks)
	if done.Stored, err = retrieval.Store(ctx, s.model, s.store, chunks); err != nil {
		return done, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.documents[document.Name] {
		return done, bad{http.StatusConflict, fmt.Sprintf("there is a document %q already", document.Name)}
	}
	s.documents[document.Name] = true
	for _, chunk := range chunks {
		s.index.Add(chunk)
	}
	return done, nil
}

func (s *service) find(question string, top int) ([]retrieval.Chunk, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.index.Chunks) == 0 {
		return nil, bad{http.StatusNotFound, "there are no documents: POST /documents first"}
	}
	return s.index.Best(question, top), nil
}

type account struct {
	Answer     string  `json:"answer"`
	TTFT       float64 `json:"ttft_ms"`
	Rows       int     `json:"rows"`
	Reused     int     `json:"reused"`
	Recomputed int     `json:"recomputed"`
}

// ask tells each piece of the answer, the first when it is there.
func (s *service) ask(ctx context.Context, q question, each func(text string) error) (account, error) {
	var end account
	chunks, err := s.find(q.Question, q.Top)
	if err != nil {
		return end, err
	}
	prompt, err := retrieval.Prompt(s.model, chunks, q.Question)
	if err != nil {
		return end, err
	}
	fusion, err := s.model.Fuse(ctx, s.store, prompt, &blend.FuseOptions{ReserveTokens: q.MaxTokens})
	if err != nil {
		return end, err
	}
	defer fusion.Close()
	info, err := fusion.Info()
	if err != nil {
		return end, err
	}
	var text strings.Builder
	generation, err := fusion.Generate(ctx, &blend.GenerateOptions{MaxTokens: q.MaxTokens}, func(token blend.Token) error {
		text.WriteString(token.Text)
		return each(token.Text)
	})
	if err != nil {
		return end, err
	}
	s.mutex.Lock()
	s.tokens += generation.Tokens
	s.ttft += info.TTFT
	s.answers++
	s.mutex.Unlock()
	return account{strings.TrimSpace(text.String()), float64(info.TTFT) / float64(time.Millisecond),
		info.Rows, info.RowsReused, info.RowsSelected}, nil
}

func (s *service) count(path string, code int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.requests[route{path, code}]++
}

// metrics is what Prometheus scrapes.
func (s *service) metrics() (string, error) {
	ofStore, err := s.store.Metrics("documents")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	s.mutex.Lock()
	defer s.mutex.Unlock()
	routes := make([]route, 0, len(s.requests))
	for r := range s.requests {
		routes = append(routes, r)
	}
	sort.Slice(routes, func(i, j int) bool {
		a, b := routes[i], routes[j]
		return a.path < b.path || (a.path == b.path && a.code < b.code)
	})
	fmt.Fprintln(&out, "# TYPE blend_requests_total counter")
	for _, r := range routes {
		fmt.Fprintf(&out, "blend_requests_total{path=%q,code=\"%d\"} %d\n", r.path, r.code, s.requests[r])
	}
	fmt.Fprintf(&out, "# TYPE blend_tokens_total counter\nblend_tokens_total %d\n", s.tokens)
	fmt.Fprintf(&out, "# TYPE blend_ttft_seconds summary\nblend_ttft_seconds_sum %.6f\nblend_ttft_seconds_count %d\n",
		s.ttft.Seconds(), s.answers)
	return out.String() + ofStore, nil
}
