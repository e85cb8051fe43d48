// A service: documents in, answers streamed out, several requests at a time on one context.
//
//	go run ./service [-model MODEL.gguf] [-store DIR] [-port N]
//
// What it answers is in examples/README.md. Stop it with Ctrl-C or SIGTERM: it finishes what it has
// begun. A client that goes away ends its generation, by the request's context.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"examples/retrieval"
	"libblend.io/go/blend"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	modelPath := flag.String("model", retrieval.Examples()+"/models/blend-qa.gguf", "a GGUF file")
	storePath := flag.String("store", "", "kept between runs; a temporary folder without it")
	port := flag.Int("port", 8080, "0: any")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *storePath == "" {
		folder, err := os.MkdirTemp("", "blend")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		*storePath = folder
	}

	c, err := blend.NewContext(&blend.ContextOptions{Log: func(record blend.LogRecord) {
		fmt.Fprintln(os.Stderr, record.Message)
	}})
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

	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newService(model, store).handler()}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stopped <- server.Shutdown(context.Background()) // waits for what was begun
	}()
	fmt.Printf("listening on http://%s\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
