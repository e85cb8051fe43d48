package blend_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"libblend.io/go/blend"
)

func wantError(t testing.TB, err, want error) {
	t.Helper()
	var e *blend.Error
	if !errors.Is(err, want) || !errors.As(err, &e) || e.Message == "" || !strings.Contains(err.Error(), e.Code.String()) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// TestTable compares the sentinels with the table from which all languages are generated.
func TestTable(t *testing.T) {
	sentinels := map[string]error{
		"INVALID_ARGUMENT": blend.ErrInvalidArgument, "INVALID_STRUCT": blend.ErrInvalidStruct,
		"BUFFER_TOO_SMALL": blend.ErrBufferTooSmall, "CONTEXT_LENGTH": blend.ErrContextLength,
		"NOT_FOUND": blend.ErrNotFound, "FORMAT": blend.ErrFormat, "UNSUPPORTED": blend.ErrUnsupported,
		"MISMATCH": blend.ErrMismatch, "CORRUPT": blend.ErrCorrupt, "IO": blend.ErrIO, "FULL": blend.ErrFull,
		"READ_ONLY": blend.ErrReadOnly, "NO_DEVICE": blend.ErrNoDevice, "BUSY": blend.ErrBusy, "OUT_OF_MEMORY": blend.ErrOutOfMemory,
		"CANCELLED": blend.ErrCancelled, "CALLBACK": blend.ErrCallback, "FORKED": blend.ErrForked,
		"NUMERIC": blend.ErrNumeric, "UNTRUSTED": blend.ErrUntrusted, "INTERNAL": blend.ErrInternal, "CLOSED": blend.ErrClosed,
		"IN_USE": blend.ErrInUse, "VIEW_HELD": blend.ErrViewHeld,
	}
	for name, sentinel := range sentinels {
		var e *blend.Error
		if !errors.As(sentinel, &e) || !strings.EqualFold(e.Code.String(), "Err"+strings.ReplaceAll(name, "_", "")) {
			t.Errorf("%s: %v", name, sentinel)
		}
		for other, another := range sentinels {
			if errors.Is(sentinel, another) != (name == other) {
				t.Errorf("%s is %s", name, other)
			}
		}
	}
}

func openModelOf(t *testing.T, content string) error {
	path := filepath.Join(t.TempDir(), "model.gguf")
	ok(t, os.WriteFile(path, []byte(content), 0o600))
	_, err := blend.OpenModel(bg, ctx, path, nil)
	return err
}

func TestEveryErrorHasItsSentinel(t *testing.T) {
	folder := t.TempDir()
	question := blend.Question([]int32{5})
	_, err := blend.NewContext(&blend.ContextOptions{Backend: "xpu"})
	wantError(t, err, blend.ErrInvalidArgument)
	_, err = model.Fuse(bg, store, prompt(t), &blend.FuseOptions{Ratio: 1.5})
	wantError(t, err, blend.ErrInvalidArgument)
	wantError(t, store.Remove("zz", nil), blend.ErrInvalidArgument)
	_, err = model.Detokenize([]int32{99999}, 0)
	wantError(t, err, blend.ErrInvalidArgument)
	_, err = model.Fuse(bg, nil, prompt(t), nil)
	wantError(t, err, blend.ErrInvalidArgument)

	wantError(t, fuse(t, &blend.FuseOptions{ReserveTokens: -1}).Decode(bg, []int32{5}), blend.ErrContextLength)

	_, err = blend.OpenModel(bg, ctx, "absent.gguf", nil)
	wantError(t, err, blend.ErrNotFound)
	if !strings.Contains(err.Error(), "absent.gguf") {
		t.Errorf("%v does not name the file", err)
	}
	_, err = blend.OpenStore(ctx, filepath.Join(folder, "none"), &blend.StoreOptions{NoCreate: true})
	wantError(t, err, blend.ErrNotFound)
	_, err = model.Restore(bg, store, blend.ChunkID(strings.Repeat("0", 64)), nil)
	wantError(t, err, blend.ErrNotFound)
	_, err = model.Fuse(bg, store, blend.Prompt{blend.Chunk([]int32{9, 9, 9}), question}, &blend.FuseOptions{OnMiss: blend.MissFail})
	wantError(t, err, blend.ErrNotFound)

	wantError(t, openModelOf(t, strings.Repeat("nonsense", 100)), blend.ErrFormat)
	wantError(t, openModelOf(t, "GGUF\x09\x00\x00\x00"+strings.Repeat("\x00", 16)), blend.ErrUnsupported)

	_, err = blend.OpenMachine(bg, model, "/proc/nothing/machine", &blend.MachineOptions{MaxTokens: 16})
	wantError(t, err, blend.ErrIO)
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno == 0 {
		t.Errorf("%v has no errno", err)
	}
	if errors.Is(err, fs.ErrNotExist) != (errno == syscall.ENOENT) {
		t.Errorf("%v and fs.ErrNotExist", err)
	}

	small := must(blend.OpenStore(ctx, filepath.Join(folder, "small"), &blend.StoreOptions{QuotaBytes: 4096}))(t)
	defer small.Close()
	_, err = model.Precompute(bg, small, tokens(t, documents[0]), nil)
	wantError(t, err, blend.ErrFull)

	readOnly := must(blend.OpenStore(ctx, filepath.Join(folder, "small"), &blend.StoreOptions{ReadOnly: true}))(t)
	_, err = model.Precompute(bg, readOnly, []int32{5, 6}, nil)
	wantError(t, err, blend.ErrReadOnly)
	ok(t, readOnly.Close())

	if _, err = blend.NewContext(&blend.ContextOptions{Backend: "cuda:99"}); err != nil {
		wantError(t, err, blend.ErrNoDevice)
	}
	ok(t, os.WriteFile(filepath.Join(folder, "profile"), []byte("no profile"), 0o600))
	_, err = blend.OpenProfile(model, filepath.Join(folder, "profile"))
	wantError(t, err, blend.ErrFormat)
}

func TestMismatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile")
	must(model.Calibrate(bg, samples(t), path, &blend.CalibrateOptions{
		Ratios: []float64{1}, ScoreTokens: 1, Correction: blend.CorrectionOff, ChunkPrefixes: [][]int32{bos}}))(t)
	content := must(os.ReadFile(path))(t)
	content[len(content)-9] ^= 1
	ok(t, os.WriteFile(path, content, 0o600))
	_, err := blend.OpenProfile(model, path)
	wantError(t, err, blend.ErrCorrupt)
}

func TestCorruptChunkIsAMissAndLogged(t *testing.T) {
	folder := t.TempDir()
	s := must(blend.OpenStore(ctx, folder, &blend.StoreOptions{Codec: blend.CodecNone}))(t)
	ids := tokens(t, strings.Repeat(documents[0]+" ", 4))
	must(model.Precompute(bg, s, ids, &blend.PrecomputeOptions{ChunkPrefix: bos}))(t)
	ok(t, s.Close())
	path := filepath.Join(folder, "data.mdb")
	content := must(os.ReadFile(path))(t)
	for at := len(content) / 2; at < len(content)-64; at += 512 {
		content[at+9] ^= 0x55
	}
	ok(t, os.WriteFile(path, content, 0o600))

	told := make(chan blend.Code, 64)
	c := must(blend.NewContext(&blend.ContextOptions{Threads: 1, LogLevel: blend.LogWarning, Log: func(record blend.LogRecord) {
		if record.Message != "" {
			told <- record.Code
		}
	}}))(t)
	defer c.Close()
	m := must(blend.OpenModel(bg, c, modelPath, nil))(t)
	defer m.Close()
	s = must(blend.OpenStore(c, folder, nil))(t)
	defer s.Close()
	bad := 0
	for _, chunk := range must(s.List(nil, true))(t) {
		if chunk.Problem != "" {
			bad++
		}
	}
	if bad != 1 {
		t.Errorf("%d chunks are damaged", bad)
	}
	_, err := m.Fuse(bg, s, blend.Prompt{blend.Text(bos), blend.Chunk(ids), blend.Question([]int32{5})}, &blend.FuseOptions{OnMiss: blend.MissFail})
	wantError(t, err, blend.ErrNotFound)
	select {
	case code := <-told:
		if (&blend.Error{Code: code}).Is(blend.ErrCorrupt) == false {
			t.Errorf("told %v", code)
		}
	case <-time.After(20 * time.Second):
		t.Error("nobody was told")
	}
}

func TestAPanicOfTheLogEndsTheTelling(t *testing.T) {
	// A GPU is asked for and cannot be had: the log is told.
	panicked := make(chan struct{})
	c := must(blend.NewContext(&blend.ContextOptions{Backend: "auto", Log: func(blend.LogRecord) {
		defer close(panicked)
		panic("mine")
	}}))(t)
	if !strings.HasPrefix(must(c.Backend())(t), "cpu") {
		ok(t, c.Close())
		t.Skip("there is a GPU")
	}
	<-panicked
	var e *blend.PanicError
	for end := time.Now().Add(20 * time.Second); e == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
		errors.As(c.Close(), &e)
	}
	if e == nil || e.Value != "mine" {
		t.Errorf("%v", e)
	}
}

var errMine = errors.New("mine")

// callbacks are all calls with a callback; each is given one to call.
func callbacks(t *testing.T) map[string]func(do func() error) error {
	progress := func(do func() error) func(int64, int64) error {
		return func(int64, int64) error { return do() }
	}
	fused := func(do func() error, options blend.FuseOptions) error {
		f, err := model.Fuse(bg, store, prompt(t), &options)
		f.Close()
		return err
	}
	return map[string]func(do func() error) error{
		"open": func(do func() error) error {
			_, err := blend.OpenModel(bg, ctx, modelPath, &blend.ModelOptions{Progress: progress(do)})
			return err
		},
		"precompute": func(do func() error) error {
			_, err := model.Precompute(bg, store, []int32{7, 8, 9}, &blend.PrecomputeOptions{Progress: progress(do)})
			return err
		},
		"fuse": func(do func() error) error { return fused(do, blend.FuseOptions{Progress: progress(do)}) },
		"score": func(do func() error) error {
			return fused(do, blend.FuseOptions{Policy: blend.PolicyCallback, Score: func(*blend.Scoring) error { return do() }})
		},
		"batch": func(do func() error) error {
			results, err := model.FuseBatch(bg, store, []blend.Request{{prompt(t), &blend.FuseOptions{Progress: progress(do)}}})
			ok(t, err)
			return results[0].Err
		},
		"generate": func(do func() error) error {
			_, err := fuse(t, nil).Generate(bg, nil, func(blend.Token) error { return do() })
			return err
		},
		"logits":    func(do func() error) error { return fuse(t, nil).Logits(func([]float32) error { return do() }) },
		"deviation": func(do func() error) error { return fuse(t, nil).Deviation(func([]float32) error { return do() }) },
		"machine": func(do func() error) error {
			_, err := blend.OpenMachine(bg, model, "", &blend.MachineOptions{MaxTokens: 32, Progress: progress(do)})
			return err
		},
		"calibrate": func(do func() error) error {
			_, err := model.Calibrate(bg, samples(t), filepath.Join(t.TempDir(), "p"), &blend.CalibrateOptions{
				Ratios: []float64{1}, ScoreTokens: 1, Correction: blend.CorrectionOff,
				OnMeasurement: func(blend.Measurement) error { return do() }})
			return err
		},
	}
}

func TestCallbacksErrorComesBack(t *testing.T) {
	for name, call := range callbacks(t) {
		calls := 0
		if err := call(func() error { calls++; return errMine }); err != errMine || calls != 1 {
			t.Errorf("%s: %v after %d calls", name, err, calls)
		}
	}
}

func TestCallbacksPanicComesBack(t *testing.T) {
	for name, call := range callbacks(t) {
		var e *blend.PanicError
		if err := call(func() error { panic(errMine) }); !errors.As(err, &e) || e.Value != errMine ||
			!errors.Is(err, errMine) || !strings.Contains(string(e.Stack), "callbacks") {
			t.Errorf("%s: %v", name, err)
		}
		if err := call(func() error { panic(any(nil)) }); !errors.As(err, &e) {
			t.Errorf("%s: panic(nil) gave %v", name, err)
		}
		if err := call(func() error { var p *int; *p = 1; return nil }); !errors.As(err, &e) { //nolint
			t.Errorf("%s: a nil dereference gave %v", name, err)
		}
	}
	if got, _ := generated(t, fuse(t, nil), nil); got != answer {
		t.Errorf("afterwards the answer is %q", got)
	}
}

// TestGoexitComesBack: called from C++ it ends the call, called from Go the goroutine; neither hangs or
// leaves anything in use.
func TestGoexitComesBack(t *testing.T) {
	for name, call := range callbacks(t) {
		var err error
		returned := false
		done := make(chan struct{})
		go func() {
			defer close(done)
			err = call(func() error { runtime.Goexit(); return nil })
			returned = true
		}()
		<-done
		onItsOwn := name == "generate" || name == "logits" || name == "deviation"
		if returned == onItsOwn || !onItsOwn && err != blend.ErrGoexit {
			t.Errorf("%s: returned %v, %v", name, returned, err)
		}
	}
	f := fuse(t, nil)
	for _, call := range []func(){
		func() { f.Generate(bg, nil, func(blend.Token) error { runtime.Goexit(); return nil }) },
		func() { f.Logits(func([]float32) error { runtime.Goexit(); return nil }) },
	} {
		done := make(chan struct{})
		go func(call func()) {
			defer close(done)
			call()
		}(call)
		<-done
		if _, err := f.Info(); err != nil {
			t.Error(err)
		}
		ok(t, f.Replace(bg, 0, 0, nil)) // changes it, so it needs it alone
	}
	if got, _ := generated(t, f, nil); got != answer {
		t.Errorf("afterwards the answer is %q", got)
	}
}

func TestScoreIsNeeded(t *testing.T) {
	_, err := model.Fuse(bg, store, prompt(t), &blend.FuseOptions{Policy: blend.PolicyCallback})
	wantError(t, err, blend.ErrInvalidArgument)
}

func TestStop(t *testing.T) {
	f := fuse(t, nil)
	before := must(f.Tokens())(t)
	end := must(f.Generate(bg, nil, func(blend.Token) error { return blend.Stop }))(t)
	if end.Tokens != 1 || end.ByStopToken || len(must(f.Tokens())(t)) != len(before) {
		t.Errorf("%+v", end)
	}
	if got, _ := generated(t, f, nil); got != answer {
		t.Errorf("gone on it says %q", got)
	}
}

func TestCancelled(t *testing.T) {
	done, cancel := context.WithCancel(bg)
	cancel()
	f := fuse(t, nil)
	for name, call := range map[string]func() error{
		"open": func() error { _, err := blend.OpenModel(done, ctx, modelPath, nil); return err },
		"fuse": func() error { _, err := model.Fuse(done, store, prompt(t), nil); return err },
		"precompute": func() error {
			_, err := model.Precompute(done, store, []int32{5, 6, 7, 8}, nil)
			return err
		},
		"batch":    func() error { _, err := model.FuseBatch(done, store, []blend.Request{{Prompt: prompt(t)}}); return err },
		"decode":   func() error { return f.Decode(done, []int32{5}) },
		"generate": func() error { _, err := f.Generate(done, nil, nil); return err },
		"save":     func() error { _, err := f.Save(done, store, nil); return err },
		"restore":  func() error { _, err := model.Restore(done, store, "", nil); return err },
		"machine":  func() error { _, err := blend.OpenMachine(done, model, "", nil); return err },
		"verify":   func() error { _, err := model.Calibrate(done, samples(t), "p", nil); return err },
	} {
		err := call()
		wantError(t, err, blend.ErrCancelled)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v is not context.Canceled", name, err)
		}
	}
}

// TestCancelledMidway cancels while the library computes, at the first sign of it.
func TestCancelledMidway(t *testing.T) {
	for name, call := range map[string]func(c context.Context, now func()) error{
		"fuse": func(c context.Context, now func()) error {
			// Callbacks come a layer; the rest of the fuse is in the library.
			f, err := model.Fuse(c, store, prompt(t), &blend.FuseOptions{Progress: func(done, total int64) error {
				now()
				<-c.Done()
				time.Sleep(20 * time.Millisecond) // the goroutine that watches is awake by then
				return nil
			}})
			f.Close()
			return err
		},
		"generate": func(c context.Context, now func()) error {
			_, err := fuse(t, &blend.FuseOptions{ReserveTokens: 400}).Generate(c, &blend.GenerateOptions{MaxTokens: 400, IgnoreEOS: true}, func(blend.Token) error {
				now()
				<-c.Done()
				time.Sleep(20 * time.Millisecond)
				return nil
			})
			return err
		},
	} {
		c, cancel := context.WithCancel(bg)
		err := call(c, cancel)
		wantError(t, err, blend.ErrCancelled)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, cancel := context.WithTimeout(bg, time.Millisecond)
	defer cancel()
	<-c.Done()
	_, err := model.Fuse(c, store, prompt(t), nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
