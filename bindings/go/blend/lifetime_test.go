package blend_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"libblend.io/go/blend"
)

type closer interface{ Close() error }

func objects(t testing.TB, folder string) (*blend.Context, *blend.Model, *blend.Store, *blend.Fusion) {
	t.Helper()
	c := must(blend.NewContext(&blend.ContextOptions{Threads: 1}))(t)
	m := must(blend.OpenModel(bg, c, modelPath, nil))(t)
	s := must(blend.OpenStore(c, folder, nil))(t)
	f := must(m.Fuse(bg, s, prompt(t), nil))(t)
	return c, m, s, f
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var all [][]int
	for _, rest := range permutations(n - 1) {
		for at := 0; at <= len(rest); at++ {
			order := append(append(append([]int{}, rest[:at]...), n-1), rest[at:]...)
			all = append(all, order)
		}
	}
	return all
}

func TestCloseInAnyOrder(t *testing.T) {
	folder := t.TempDir()
	for _, order := range permutations(4) {
		c, m, s, f := objects(t, folder)
		all := []closer{c, m, s, f}
		for _, i := range order {
			ok(t, all[i].Close())
			ok(t, all[i].Close()) // twice is fine
		}
	}
}

func TestAFusionOutlivesAll(t *testing.T) {
	c, m, s, f := objects(t, t.TempDir())
	for _, closing := range []closer{c, s, m} {
		ok(t, closing.Close())
	}
	c, m, s = nil, nil, nil
	runtime.GC()
	if got, _ := generated(t, f, nil); got != answer {
		t.Errorf("%q", got)
	}
	ok(t, f.Close())
}

func TestUseAfterClose(t *testing.T) {
	c, m, s, f := objects(t, t.TempDir())
	p := prompt(t)
	uses := map[string]func(*blend.Context, *blend.Model, *blend.Store, *blend.Fusion) error{
		"backend": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			_, err := c.Backend()
			return err
		},
		"model": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			_, err := blend.OpenModel(bg, c, modelPath, nil)
			return err
		},
		"store": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			_, err := blend.OpenStore(c, t.TempDir(), nil)
			return err
		},
		"tokenize": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			_, err := m.Tokenize("a", 0)
			return err
		},
		"fuse": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			_, err := m.Fuse(bg, store, p, nil)
			return err
		},
		"fuse from it": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			if s == nil {
				return f.Decode(bg, nil) // without a store there is nothing to close
			}
			_, err := model.Fuse(bg, s, p, nil)
			return err
		},
		"precompute": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			_, err := m.Precompute(bg, s, p[1].Tokens, nil)
			return err
		},
		"find": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			_, _, err := model.FindChunk(s, p[1].Tokens, nil)
			return err
		},
		"stat": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			_, err := s.Stat()
			return err
		},
		"flush": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error { return s.Flush() },
		"list": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			_, err := s.List(nil, false)
			return err
		},
		"info": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			_, err := f.Info()
			return err
		},
		"selected": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			_, err := f.Selected()
			return err
		},
		"decode": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			return f.Decode(bg, []int32{5})
		},
		"erase": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			return f.Erase(bg, 1, 1)
		},
		"extend": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			return f.Extend(bg, nil, p, nil)
		},
		"save": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			_, err := f.Save(bg, store, nil)
			return err
		},
		"generate": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			_, err := f.Generate(bg, nil, nil)
			return err
		},
		"logits": func(c *blend.Context, m *blend.Model, s *blend.Store, f *blend.Fusion) error {
			return f.Logits(func([]float32) error { t.Error("logits of a closed fusion"); return nil })
		},
	}
	for _, closing := range []closer{f, s, m, c} {
		ok(t, closing.Close())
	}
	for name, use := range uses {
		if err := use(c, m, s, f); !errors.Is(err, blend.ErrClosed) {
			t.Errorf("%s of what is closed: %v", name, err)
		}
		if err := use(nil, nil, nil, nil); !errors.Is(err, blend.ErrClosed) {
			t.Errorf("%s of nil: %v", name, err)
		}
		if err := use(&blend.Context{}, &blend.Model{}, &blend.Store{}, &blend.Fusion{}); !errors.Is(err, blend.ErrClosed) {
			t.Errorf("%s of what was never opened: %v", name, err)
		}
	}
}

func TestOneUserAtATime(t *testing.T) {
	f := fuse(t, nil)
	must(f.Generate(bg, &blend.GenerateOptions{MaxTokens: 1}, func(blend.Token) error {
		_, err := f.Info()
		wantError(t, err, blend.ErrInUse)
		wantError(t, f.Decode(bg, []int32{5}), blend.ErrInUse)
		_, err = f.Generate(bg, nil, nil)
		wantError(t, err, blend.ErrInUse)
		return nil
	}))(t)
	for _, look := range []func(func([]float32) error) error{f.Logits, f.Deviation} {
		ok(t, look(func([]float32) error {
			wantError(t, f.Decode(bg, []int32{5}), blend.ErrViewHeld)
			wantError(t, f.Erase(bg, 1, 1), blend.ErrViewHeld)
			_, err := f.Info() // those that read may look too
			return err
		}))
	}
	ok(t, f.Decode(bg, []int32{5}))
}

func TestCloseInsideACallback(t *testing.T) {
	f := must(model.Fuse(bg, store, prompt(t), nil))(t)
	ok(t, f.Logits(func(logits []float32) error {
		ok(t, f.Close())
		if argmax(logits) < 0 || len(logits) != 1536 {
			t.Error("the logits are gone")
		}
		return nil
	}))
	_, err := f.Info()
	wantError(t, err, blend.ErrClosed)
	f = must(model.Fuse(bg, store, prompt(t), nil))(t)
	n := 0
	must(f.Generate(bg, &blend.GenerateOptions{MaxTokens: 3, IgnoreEOS: true}, func(blend.Token) error {
		n++
		return f.Close()
	}))(t)
	if n != 3 {
		t.Errorf("%d tokens", n)
	}
}

// TestCloseWhileCallsRun closes everything while others use it; each gets an answer or ErrClosed.
func TestCloseWhileCallsRun(t *testing.T) {
	folder := t.TempDir()
	for round := 0; round < 5; round++ {
		c, m, s, f := objects(t, folder)
		var group sync.WaitGroup
		use := func(call func() error) {
			group.Add(1)
			go func() {
				defer group.Done()
				for {
					if err := call(); errors.Is(err, blend.ErrClosed) {
						return
					} else if err != nil && !errors.Is(err, blend.ErrInUse) {
						t.Error(err)
						return
					}
				}
			}()
		}
		use(func() error { _, err := m.Tokenize("abc", 0); return err })
		use(func() error {
			fused, err := m.Fuse(bg, s, prompt(t), nil)
			fused.Close()
			return err
		})
		use(func() error { _, err := s.Stat(); return err })
		use(func() error { _, err := f.Generate(bg, &blend.GenerateOptions{MaxTokens: 2}, nil); return err })
		use(func() error { _, err := f.Info(); return err })
		use(func() error { _, err := c.Backend(); return err })
		time.Sleep(time.Duration(round) * 5 * time.Millisecond)
		for _, closing := range []closer{c, s, m, f} {
			ok(t, closing.Close())
		}
		group.Wait()
	}
}

// TestGarbageUnderLoad leaves everything to the collector while many fuse.
func TestGarbageUnderLoad(t *testing.T) {
	stop := make(chan struct{})
	var collector, group sync.WaitGroup
	collector.Add(1)
	go func() {
		defer collector.Done()
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
				time.Sleep(time.Millisecond)
			}
		}
	}()
	for seed := 0; seed < 4; seed++ {
		group.Add(1)
		go func(seed int) {
			defer group.Done()
			for i := 0; i < 10; i++ {
				f, err := model.Fuse(bg, store, prompt(t), &blend.FuseOptions{ReserveTokens: 8, Progress: func(int64, int64) error {
					runtime.GC() // the director and its options stay
					return nil
				}})
				if err != nil {
					t.Error(err)
					return
				}
				var text strings.Builder
				if _, err := f.Generate(bg, &blend.GenerateOptions{MaxTokens: 8}, func(token blend.Token) error {
					text.WriteString(token.Text)
					return nil
				}); err != nil || strings.TrimSpace(text.String()) != answer {
					t.Errorf("%q, %v", text.String(), err)
				}
				if (i+seed)%3 == 0 {
					f.Close()
				}
			}
		}(seed)
	}
	group.Wait()
	close(stop)
	collector.Wait()
}

// TestForgottenIsClosed waits for finalizers: a store that can be seen to be closed, as the directory
// is free for others to damage.
func TestForgottenIsClosed(t *testing.T) {
	before := threads(t)
	for i := 0; i < 8; i++ {
		must(blend.NewContext(&blend.ContextOptions{Threads: 5}))(t)
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		runtime.GC()
		if threads(t) < before+12 {
			return
		}
	}
	t.Errorf("%d threads, before %d", threads(t), before)
}

func status(t testing.TB, key string) int {
	for _, line := range strings.Split(string(must(os.ReadFile("/proc/self/status"))(t)), "\n") {
		var value int
		if n, _ := fmt.Sscanf(line, key+": %d", &value); n == 1 {
			return value
		}
	}
	t.Skip("this system does not say")
	return 0
}

func threads(t testing.TB) int { return status(t, "Threads") }

// TestTenThousandWithoutGrowth opens and closes contexts ten thousand times, stores and fusions a
// hundredth as often. A leak makes the process grow every time; malloc's pools, one a thread, only
// until they are full.
// TestWhatIsForgottenIsClosed: a store that somebody has open cannot be compacted, and fusions take
// memory.
func TestWhatIsForgottenIsClosed(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "store")
	func() {
		s := must(blend.OpenStore(ctx, folder, nil))(t)
		must(model.Precompute(bg, s, []int32{5, 6, 7}, nil))(t)
	}()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		_, _, err := blend.CompactStore(folder)
		if err == nil {
			break
		}
		wantError(t, err, blend.ErrBusy)
		if time.Now().After(end) {
			t.Fatal("a store that was forgotten is open")
		}
	}
	p := prompt(t)
	before := status(t, "RssAnon")
	for i := 0; i < 200; i++ { // 0.7 MB each
		must(model.Fuse(bg, store, p, nil))(t)
		if i%10 == 9 {
			runtime.GC()
			time.Sleep(time.Millisecond) // finalizers
		}
	}
	if grown := status(t, "RssAnon") - before; grown > 48<<10 {
		t.Errorf("%d KiB more for fusions that were forgotten", grown)
	}
}

func TestTenThousandWithoutGrowth(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	folder := filepath.Join(t.TempDir(), "store")
	p := prompt(t)
	once := func(i int) {
		c := must(blend.NewContext(&blend.ContextOptions{Threads: 1}))(t)
		ok(t, c.Close())
		if _, err := model.Fuse(bg, nil, blend.Prompt{}, nil); !errors.Is(err, blend.ErrInvalidArgument) {
			t.Fatal(err)
		}
		must(model.Tokenize("a few words", 0))(t)
		if i%100 == 0 {
			s := must(blend.OpenStore(ctx, folder, nil))(t)
			f := must(model.Fuse(bg, s, p, &blend.FuseOptions{Progress: func(int64, int64) error { return nil }}))(t)
			must(f.Generate(bg, &blend.GenerateOptions{MaxTokens: 2}, nil))(t)
			ok(t, f.Close())
			must(s.Stat())(t)
			ok(t, s.Close())
		}
	}
	measured := func() int {
		runtime.GC()
		time.Sleep(50 * time.Millisecond) // finalizers
		runtime.GC()
		return status(t, "RssAnon")
	}
	for i := 0; i < 2000; i++ {
		once(i)
	}
	var grown []int
	before := measured()
	for try := 0; try < 8; try++ {
		for i := 0; i < 10000; i++ {
			once(i)
		}
		now := measured()
		if now-before < 512 { // KiB: 50 bytes a round
			return
		}
		grown = append(grown, now-before)
		before = now
	}
	t.Errorf("every ten thousand rounds take so many KiB: %v", grown)
}

func TestManyGoroutinesOneContext(t *testing.T) {
	var group sync.WaitGroup
	for i := 0; i < 24; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			f, err := model.Fuse(bg, store, prompt(t), nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			var text strings.Builder
			_, err = f.Generate(bg, nil, func(token blend.Token) error { text.WriteString(token.Text); return nil })
			if err != nil || strings.TrimSpace(text.String()) != answer {
				t.Errorf("%q, %v", text.String(), err)
			}
		}()
	}
	group.Wait()
}
