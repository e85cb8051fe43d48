package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"examples/retrieval"
	"libblend.io/go/blend"
)

const (
	maxBody          = 4 << 20
	clientClosed     = 499
	defaultMaxTokens = 32
	defaultTop       = 6
)

type question struct {
	Question  string `json:"question"`
	MaxTokens int    `json:"max_tokens"`
	Top       int    `json:"top"`
}

type document struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/documents", s.served("/documents", http.MethodPost, s.postDocuments))
	mux.HandleFunc("/ask", s.served("/ask", http.MethodPost, s.postAsk))
	mux.HandleFunc("/metrics", s.served("/metrics", http.MethodGet, s.getMetrics))
	mux.HandleFunc("/", s.served("other", "", nil))
	return mux
}

// served runs one kind of request and counts how it ended.
func (s *service) served(path, method string, work func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var err error
		if work == nil || r.Method != method {
			err = bad{http.StatusNotFound, "there are POST /documents, POST /ask and GET /metrics"}
		} else {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			err = work(w, r)
		}
		code := status(r, err)
		s.count(path, code)
		if err != nil && code != clientClosed {
			send(w, code, map[string]string{"error": err.Error()})
		}
	}
}

func status(r *http.Request, err error) int {
	var b bad
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &b):
		return b.status
	case r.Context().Err() != nil:
		return clientClosed
	case errors.Is(err, blend.ErrInvalidArgument), errors.Is(err, blend.ErrContextLength):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

func send(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // the client has gone, or has it
}

func read(r *http.Request, value any) error {
	if err := json.NewDecoder(r.Body).Decode(value); err != nil {
		return bad{http.StatusBadRequest, fmt.Sprintf("the body is not what it should be: %v", err)}
	}
	return nil
}

func (s *service) postDocuments(w http.ResponseWriter, r *http.Request) error {
	var d document
	if err := read(r, &d); err != nil {
		return err
	}
	if d.Name == "" || d.Text == "" {
		return bad{http.StatusBadRequest, `"name" and "text" must be given`}
	}
	done, err := s.add(r.Context(), retrieval.Document{Name: d.Name, Text: d.Text})
	if err != nil {
		return err
	}
	send(w, http.StatusOK, done)
	return nil
}

func (s *service) getMetrics(w http.ResponseWriter, r *http.Request) error {
	text, err := s.metrics()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = w.Write([]byte(text))
	return nil
}

func (s *service) postAsk(w http.ResponseWriter, r *http.Request) error {
	q := question{MaxTokens: defaultMaxTokens, Top: defaultTop}
	if err := read(r, &q); err != nil {
		return err
	}
	if q.Question == "" || q.MaxTokens <= 0 || q.Top <= 0 {
		return bad{http.StatusBadRequest, `"question" must be given, "max_tokens" and "top" be more than 0`}
	}
	begun := false
	event := func(name string, value any) error {
		if !begun { // what is wrong before the first token has a status of its own
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Cache-Control", "no-store")
			begun = true
		}
		data, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if name != "" {
			name = "event: " + name + "\n"
		}
		if _, err := fmt.Fprintf(w, "%sdata: %s\n\n", name, data); err != nil {
			return err
		}
		w.(http.Flusher).Flush()
		return nil
	}
	done, err := s.ask(r.Context(), q, func(text string) error { return event("", map[string]string{"text": text}) })
	if err != nil && begun && r.Context().Err() == nil {
		return event("error", map[string]string{"error": err.Error()})
	}
	if err != nil {
		return err
	}
	return event("done", done)
}
