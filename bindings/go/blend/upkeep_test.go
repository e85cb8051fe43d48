package blend_test

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"libblend.io/go/blend"
)

// chunksOf stores every document and gives the ids.
func chunksOf(t *testing.T, s *blend.Store) []blend.ChunkID {
	t.Helper()
	var ids []blend.ChunkID
	for _, document := range documents {
		ids = append(ids, must(model.Precompute(bg, s, tokens(t, document), nil))(t).ID)
	}
	return ids
}

func openStore(t *testing.T, path string, options *blend.StoreOptions) *blend.Store {
	t.Helper()
	s := must(blend.OpenStore(ctx, path, options))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestBackgroundPut(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	stored := must(model.Precompute(bg, s, tokens(t, documents[0]), &blend.PrecomputeOptions{Background: true}))(t)
	if !must(s.Wait(stored.ID, -1))(t) || !must(s.Wait(stored.ID, time.Second))(t) {
		t.Error("not done after waiting for it")
	}
	_, err := s.Wait(blend.ChunkID(strings.Repeat("0", 64)), 0)
	wantError(t, err, blend.ErrNotFound)
}

func TestChunksAreFoundByWhatTheyAreCalled(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	stored := func(text string, options blend.PrecomputeOptions) blend.ChunkID {
		return must(model.Precompute(bg, s, tokens(t, text), &options))(t).ID
	}
	first := stored(documents[0], blend.PrecomputeOptions{Label: "a.md#1", Tags: "lang=en draft"})
	stored(documents[1], blend.PrecomputeOptions{Label: "a.md#2"})
	acme := stored(documents[0], blend.PrecomputeOptions{Label: "a.md#1", Tenant: "acme"})

	none, theirs := "", "acme"
	labels := func(filter blend.FilterOptions) string {
		t.Helper()
		var all []string
		for _, c := range must(s.List(&filter, false))(t) {
			all = append(all, c.Label+"|"+c.Tags)
		}
		sort.Strings(all)
		return strings.Join(all, ";")
	}
	wants := func(filter blend.FilterOptions, want string) {
		t.Helper()
		if got := labels(filter); got != want {
			t.Errorf("%+v: %q, not %q", filter, got, want)
		}
	}
	wants(blend.FilterOptions{Label: "a.md"}, "a.md#1|;a.md#1|draft lang=en;a.md#2|")
	wants(blend.FilterOptions{Label: "a.md", Tenant: &none}, "a.md#1|draft lang=en;a.md#2|")
	wants(blend.FilterOptions{Tags: "lang=*"}, "a.md#1|draft lang=en")
	wants(blend.FilterOptions{Tenant: &theirs, Model: must(model.Info())(t).Fingerprint[:8]}, "a.md#1|")
	wants(blend.FilterOptions{Unlabelled: true}, "")

	ok(t, s.SetLabel(first, &blend.LabelOptions{Label: given("Größe.pdf#7")}))
	ok(t, s.SetLabel(first, &blend.LabelOptions{Tags: given("")}))
	wants(blend.FilterOptions{Label: "Größe.pdf"}, "Größe.pdf#7|")
	ok(t, s.SetLabel(acme, &blend.LabelOptions{Label: given(""), Tenant: given("acme")}))
	ok(t, s.SetLabel(acme, &blend.LabelOptions{Tags: given("x"), Tenant: given("acme")}))
	wants(blend.FilterOptions{Unlabelled: true}, "|x")
	wantError(t, s.SetLabel(acme, &blend.LabelOptions{Label: given("mine"), Tenant: given("evil")}), blend.ErrNotFound)
	for _, wrong := range []string{strings.Repeat("x", 1025), "a\nb", "a\x00b", "\xff"} {
		wantError(t, s.SetLabel(first, &blend.LabelOptions{Label: given(wrong)}), blend.ErrInvalidArgument)
	}
	_, err := s.List(&blend.FilterOptions{Model: "model.gguf"}, false)
	wantError(t, err, blend.ErrInvalidArgument)
	_, err = s.RemoveMatching(&blend.FilterOptions{Tenant: &theirs})
	wantError(t, err, blend.ErrInvalidArgument)
	removed := must(s.RemoveMatching(&blend.FilterOptions{Label: "a.md"}))(t)
	if len(removed) != 1 || removed[0].Label != "a.md#2" {
		t.Errorf("%+v", removed)
	}
	if n := len(must(s.RemoveMatching(&blend.FilterOptions{Label: "*"}))(t)); n != 2 {
		t.Errorf("%d removed by *", n)
	}
	wants(blend.FilterOptions{}, "")
}

func TestPinsAndEviction(t *testing.T) {
	s := openStore(t, t.TempDir(), &blend.StoreOptions{Eviction: blend.EvictFIFO, RAMBytes: 1 << 20, TTL: time.Hour})
	ids := chunksOf(t, s)
	ok(t, s.SetPinned(ids[0], true))
	ok(t, s.Prefetch(ids[1:2]))
	ok(t, s.Prefetch(nil))
	n, err := s.Evict(0)
	wantError(t, err, blend.ErrFull) // the pinned one is in the way
	list := must(s.List(nil, false))(t)
	if len(list) != 1 || list[0].ID != ids[0] || !list[0].Pinned {
		t.Errorf("%d left: %+v", n, list)
	}
	ok(t, s.SetPinned(ids[0], false))
	if n := must(s.Evict(0))(t); n != 1 {
		t.Errorf("%d left", n)
	}
	if stat := must(s.Stat())(t); stat.EvictedChunks == 0 || stat.RAMBudgetBytes != 1<<20 {
		t.Errorf("%+v", stat)
	}
	wantError(t, s.SetPinned(ids[0], true), blend.ErrNotFound)
	wantError(t, s.Prefetch([]blend.ChunkID{"zz"}), blend.ErrInvalidArgument)
}

func TestTenants(t *testing.T) {
	s := openStore(t, t.TempDir(), &blend.StoreOptions{TenantQuotaBytes: 1 << 30})
	must(model.Precompute(bg, s, tokens(t, documents[0]), &blend.PrecomputeOptions{Tenant: "a"}))(t)
	use := must(s.TenantUsage("a"))(t)
	if use.Chunks != 1 || use.StoredBytes <= 0 || use.QuotaBytes != 1<<30 {
		t.Errorf("%+v", use)
	}
	ok(t, s.SetTenantQuota("a", 4096))
	if use := must(s.TenantUsage("a"))(t); use.QuotaBytes != 4096 {
		t.Errorf("%+v", use)
	}
	wantError(t, s.SetTenantQuota("", 1), blend.ErrInvalidArgument)
}

func TestCopyExportImportCompact(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, filepath.Join(folder, "s"), nil)
	ids := chunksOf(t, s)
	ok(t, s.Copy(filepath.Join(folder, "copy")))
	before, after, err := blend.CompactStore(filepath.Join(folder, "copy"))
	if err != nil || before <= 0 || after <= 0 || after > before {
		t.Errorf("%d, %d, %v", before, after, err)
	}
	_, _, err = blend.CompactStore(filepath.Join(folder, "s"))
	wantError(t, err, blend.ErrBusy)
	if removed := must(s.Repair())(t); len(removed) != 0 {
		t.Errorf("repaired away: %+v", removed)
	}

	file := filepath.Join(folder, "chunks")
	if n := must(s.Export(bg, file, &blend.TransferOptions{IDs: ids[:2]}))(t); n != 2 {
		t.Errorf("%d exported", n)
	}
	other := openStore(t, filepath.Join(folder, "other"), nil)
	if n := must(other.Import(bg, file, nil))(t); n != 2 {
		t.Errorf("%d imported", n)
	}
	if n := must(other.Import(bg, file, nil))(t); n != 0 {
		t.Errorf("%d imported again", n)
	}
	if n := must(other.Import(bg, file, &blend.TransferOptions{Replace: true}))(t); n != 2 {
		t.Errorf("%d replaced", n)
	}
	if _, err := s.Export(bg, file, &blend.TransferOptions{Progress: func(int64, int64) error { return errMine }}); err != errMine {
		t.Error(err)
	}
	ok(t, os.WriteFile(file, []byte("no such file of chunks"), 0o600))
	_, err = other.Import(bg, file, nil)
	wantError(t, err, blend.ErrFormat)
}

func TestMetrics(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	n := len(chunksOf(t, s))
	text := must(s.Metrics("mine"))(t)
	if !strings.Contains(text, `store="mine"`) || !strings.Contains(text, "# TYPE blend_store") {
		t.Errorf("%s", text)
	}
	for _, figure := range must(s.ListMetrics())(t) {
		if !strings.Contains(text, figure.Name+"{") || figure.Help == "" {
			t.Errorf("%+v is not in the text", figure)
		}
		if strings.HasSuffix(figure.Name, "_chunks") && figure.Labels == "" && figure.Value != float64(n) && figure.Value != 0 {
			t.Errorf("%+v", figure)
		}
	}
}
