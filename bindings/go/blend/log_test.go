package blend_test

import (
	"path/filepath"
	"testing"
	"time"

	"libblend.io/go/blend"
)

func TestTheLogHasLevelsAndFields(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "s")
	told := make(chan blend.LogRecord, 64)
	c := must(blend.NewContext(&blend.ContextOptions{Threads: 1, Log: func(r blend.LogRecord) { told <- r }}))(t)
	defer c.Close()
	s := must(blend.OpenStore(c, folder, nil))(t)
	ok(t, s.Close())
	for end := time.After(20 * time.Second); ; {
		select {
		case r := <-told:
			if r.Name != "BLEND_EVENT_STORE_OPENED" {
				continue
			}
			if r.Level != blend.LogInfo || r.Level.Slog() != 0 || r.Component != "store" || time.Since(r.Time) > time.Hour {
				t.Errorf("%+v", r)
			}
			args := r.Args() // pairs, as log/slog has them
			found := map[string]any{}
			for i := 0; i < len(args); i += 2 {
				found[args[i].(string)] = args[i+1]
			}
			if found["path"] != folder || found["chunks"] != int64(0) || found["code"] != r.Name {
				t.Errorf("%v", args)
			}
			return
		case <-end:
			t.Fatal("nobody was told")
		}
	}
}

func TestLevelsAreThoseOfSlog(t *testing.T) {
	for level, number := range map[blend.LogLevel]int{blend.LogDebug: -4, blend.LogInfo: 0, blend.LogWarning: 4, blend.LogError: 8} {
		if level.Slog() != number {
			t.Errorf("%v is %d", level, level.Slog())
		}
	}
}
