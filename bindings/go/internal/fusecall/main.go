// fusecall is bench/fuse_call.c through the Go binding: how long one fuse takes, seen from Go.
//
//	fusecall MODEL.gguf STORE_DIR CHUNKS TOKENS CALLS
//
// Prints, for every call (fuse and close together), a line of nanoseconds: by the clock, and of the
// calling thread's CPU time. bench/fuse_call.py compares:
//
//	python3 bench/fuse_call.py --compare build/release/bench/fuse_call \
//	  --binding Go build/release/bindings/go/fusecall
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"libblend.io/go/blend"
)

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: fusecall MODEL.gguf STORE_DIR CHUNKS TOKENS CALLS")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// threadCPU is what the calling thread has computed for.
func threadCPU() time.Duration {
	const clockThreadCPUTime = 3
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPUTime, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano())
}

func run(modelPath, storePath string, args []string) error {
	runtime.LockOSThread()
	var numbers [3]int
	for i, arg := range args {
		var err error
		if numbers[i], err = strconv.Atoi(arg); err != nil {
			return err
		}
	}
	chunks, tokens, calls := numbers[0], numbers[1], numbers[2]
	ctx := context.Background()
	c, err := blend.NewContext(&blend.ContextOptions{Threads: 1})
	if err != nil {
		return err
	}
	defer c.Close()
	model, err := blend.OpenModel(ctx, c, modelPath, nil)
	if err != nil {
		return err
	}
	defer model.Close()
	store, err := blend.OpenStore(c, storePath, nil)
	if err != nil {
		return err
	}
	defer store.Close()

	ids := make([]int32, chunks*tokens+16)
	for i := range ids {
		ids[i] = int32(5 + i*7919%800)
	}
	var prompt blend.Prompt
	for i := 0; i < chunks; i++ {
		chunk := ids[i*tokens : (i+1)*tokens]
		if _, err := model.Precompute(ctx, store, chunk, nil); err != nil {
			return err
		}
		prompt = append(prompt, blend.Chunk(chunk))
	}
	prompt = append(prompt, blend.Question(ids[chunks*tokens:]))
	for i := -3; i < calls; i++ { // three to warm up
		begin, cpu := time.Now(), threadCPU()
		fusion, err := model.Fuse(ctx, store, prompt, nil)
		if err != nil {
			return err
		}
		if err := fusion.Close(); err != nil {
			return err
		}
		took := threadCPU() - cpu
		if i >= 0 {
			fmt.Println(time.Since(begin).Nanoseconds(), took.Nanoseconds())
		}
	}
	return nil
}
