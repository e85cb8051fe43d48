package blend_test

import (
	"errors"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"libblend.io/go/blend"
)

const (
	hostLayers = 3
	hostHeads  = 2
	hostDim    = 4
	hostRow    = hostHeads * hostDim
)

func host(t *testing.T) (*blend.Model, *blend.Store) {
	t.Helper()
	m := must(blend.NewModelFromDescription(ctx, blend.ModelDescription{Name: "host", Layers: hostLayers, Heads: 4,
		KVHeads: hostHeads, HeadDim: hostDim, Vocab: 100, ContextLength: 64}))(t)
	s := must(blend.OpenStore(ctx, filepath.Join(t.TempDir(), "s"), &blend.StoreOptions{KVDtype: blend.DtypeF32}))(t)
	t.Cleanup(func() { m.Close(); s.Close() })
	return m, s
}

func newKV(t *testing.T, rows int) (*blend.KV, []float32, []float32) {
	t.Helper()
	kv := must(blend.NewKV(rows*hostRow, blend.DtypeF32))(t)
	t.Cleanup(func() { kv.Close() })
	k, v := kv.Float32()
	return kv, k, v
}

// put stores a chunk whose K is 100*layer + row + element/100, and V minus that.
func put(t *testing.T, m *blend.Model, s *blend.Store, ids []int32) {
	t.Helper()
	var layers []blend.KVView
	for layer := 0; layer < hostLayers; layer++ {
		kv, k, v := newKV(t, len(ids))
		for i := range k {
			k[i] = stored(layer, i/hostRow, i%hostRow)
			v[i] = -k[i]
		}
		view := kv.View()
		view.Unrotated = true
		layers = append(layers, view)
	}
	id := must(m.PutChunk(bg, s, ids, layers, 0, nil))(t)
	if found, there, err := m.FindChunk(s, ids, nil); err != nil || !there || found != id {
		t.Errorf("put as %s, found as %s, %v", id, found, err)
	}
}

func stored(layer, row, element int) float32 {
	return float32(100*layer+row) + float32(element)/100
}

func TestLayerwise(t *testing.T) {
	m, s := host(t)
	chunk := []int32{5, 6, 7, 8, 9, 10}
	put(t, m, s, chunk)
	told := 0
	layerwise := must(blend.NewLayerwise(bg, m, s, blend.Prompt{blend.Text([]int32{1, 2}), blend.Chunk(chunk), blend.Question([]int32{3})},
		&blend.FuseOptions{OnMiss: blend.MissFail, Ratio: 0.33, Progress: func(int64, int64) error { told++; return nil }}))(t)
	if got := must(layerwise.Tokens())(t); !reflect.DeepEqual(got, []int32{1, 2, 5, 6, 7, 8, 9, 10, 3}) {
		t.Errorf("tokens %v", got)
	}
	for layer := 0; layer < hostLayers; layer++ {
		kv, k, v := newKV(t, 9)
		view := kv.View()
		view.Unrotated = true
		ok(t, layerwise.FetchKV(layer, view))
		rows := must(layerwise.Rows())(t)
		fresh, freshK, freshV := newKV(t, len(rows))
		computed := map[int]bool{}
		for i, row := range rows {
			computed[int(row)] = true
			for e := 0; e < hostRow; e++ {
				freshK[i*hostRow+e] = stored(layer, int(row)-2, e)
				freshV[i*hostRow+e] = -freshK[i*hostRow+e]
				if row == 4 || row == 6 { // these deviate
					freshV[i*hostRow+e]++
				}
			}
		}
		ok(t, layerwise.Synchronize(layer))
		for i := range k {
			row := i / hostRow
			want := stored(layer, row-2, i%hostRow)
			if computed[row] {
				want = 0
			}
			if math.Abs(float64(k[i]-want)) > 1e-4 || math.Abs(float64(v[i]+want)) > 1e-4 {
				t.Fatalf("layer %d, row %d: K %v V %v, stored was %v", layer, row, k[i], v[i], want)
			}
		}
		freshView := fresh.View()
		freshView.Unrotated = true
		next := must(layerwise.Select(layer, &freshView))(t)
		if layer == 1 && !reflect.DeepEqual(next, []uint32{0, 1, 4, 6, 8}) {
			t.Errorf("selected %v", next)
		}
		ok(t, layerwise.Commit(layer))
	}
	if got := must(layerwise.Selected())(t); !reflect.DeepEqual(got, []uint32{4, 6}) {
		t.Errorf("selected %v", got)
	}
	if d := must(layerwise.Deviation())(t); len(d) != 9 || d[4] <= d[3] {
		t.Errorf("deviation %v", d)
	}
	if info := must(layerwise.Info())(t); info.RowsSelected != 2 || told == 0 {
		t.Errorf("told %d times, %+v", told, info)
	}
	if segment := must(layerwise.Segments())(t)[1]; segment.RowsSelected != 2 || segment.Source != blend.SourceStore {
		t.Errorf("%+v", segment)
	}
	if layer := must(layerwise.Layers())(t)[2]; layer.RowsPlaced != 4 {
		t.Errorf("%+v", layer)
	}
	ok(t, layerwise.Close())
	_, err := layerwise.Rows()
	wantError(t, err, blend.ErrClosed)
}

// The host's K, V and attention are made up: the question attends to rows 3 and 5, so those go on.
func TestLayerwiseProbe(t *testing.T) {
	chunk := tokens(t, documents[0])[:10]
	must(model.Precompute(bg, store, chunk, nil))(t)
	info := must(model.Info())(t)
	layerwise := must(blend.NewLayerwise(bg, model, store, blend.Prompt{blend.Text([]int32{99}), blend.Chunk(chunk), blend.Question([]int32{5, 6})},
		&blend.FuseOptions{Policy: blend.PolicyProbe, Ratio: 0.2, OnMiss: blend.MissFail}))(t)
	defer layerwise.Close()
	attention := make([]float32, 13)
	attention[3], attention[5] = 0.25, 0.5
	for layer := 0; layer < 2; layer++ {
		kv := must(blend.NewKV(13*int(info.KVHeads*info.HeadDim), blend.DtypeF32))(t)
		defer kv.Close()
		ok(t, layerwise.FetchKV(layer, kv.View()))
		_, early := layerwise.Probe(attention)
		wantError(t, early, blend.ErrInvalidArgument)
		if s := early.Error(); !strings.Contains(s, "due now is Layerwise.Synchronize") {
			t.Errorf("not what is due: %s", s)
		}
		ok(t, layerwise.Synchronize(layer))
		if layer == 0 {
			ok(t, layerwise.Commit(layer))
		}
	}
	for _, wrong := range [][]float32{nil, attention[:12]} {
		_, err := layerwise.Probe(wrong)
		wantError(t, err, blend.ErrInvalidArgument)
	}
	if rows := must(layerwise.Probe(attention))(t); !reflect.DeepEqual(rows, []uint32{0, 3, 5, 11, 12}) {
		t.Errorf("rows %v", rows)
	}
	if rows := must(layerwise.Selected())(t); !reflect.DeepEqual(rows, []uint32{3, 5}) {
		t.Errorf("selected %v", rows)
	}
}

func TestLayerwiseErrors(t *testing.T) {
	m, s := host(t)
	put(t, m, s, []int32{5, 6})
	p := blend.Prompt{blend.Chunk([]int32{5, 6}), blend.Question([]int32{3})}
	layerwise := must(blend.NewLayerwise(bg, m, s, p, &blend.FuseOptions{OnMiss: blend.MissFail, Progress: func(int64, int64) error { return errMine }}))(t)
	defer layerwise.Close()
	early := layerwise.Synchronize(0) // fetch is due
	wantError(t, early, blend.ErrInvalidArgument)
	if s := early.Error(); !strings.Contains(s, "Layerwise.FetchKV") || strings.Contains(s, "blend_") || strings.Contains(s, "BLEND_") {
		t.Errorf("not in Go's words: %s", s)
	}
	short, _, _ := newKV(t, 2)
	wantError(t, layerwise.FetchKV(0, short.View()), blend.ErrInvalidArgument) // memory for two rows of three
	kv, k, _ := newKV(t, 3)
	ok(t, layerwise.FetchKV(0, kv.View()))
	ok(t, layerwise.Synchronize(0))
	ok(t, layerwise.Restart())
	ok(t, layerwise.FetchKV(0, kv.View()))
	ok(t, layerwise.Synchronize(0))
	must(layerwise.Select(0, nil))(t)
	if err := layerwise.Commit(0); !errors.Is(err, errMine) {
		t.Errorf("the callback's error came back as %v", err)
	}
	_, err := m.Tokenize("text", 0)
	wantError(t, err, blend.ErrInvalidArgument)
	k[0] = float32(math.NaN())
	_, err = m.PutChunk(bg, s, []int32{1, 2, 3}, []blend.KVView{kv.View(), kv.View(), kv.View()}, 0, nil)
	wantError(t, err, blend.ErrNumeric)
	_, err = blend.NewModelFromDescription(ctx, blend.ModelDescription{})
	wantError(t, err, blend.ErrInvalidArgument)
	other := must(blend.NewModelFromDescription(ctx, blend.ModelDescription{Name: "other", Layers: 2, Heads: 2, KVHeads: 2,
		HeadDim: 4, Vocab: 1600, ContextLength: 64}))(t)
	defer other.Close()
	stored := must(model.Precompute(bg, store, tokens(t, "A chunk of the model."), nil))(t)
	_, err = blend.NewLayerwise(bg, other, store, blend.Prompt{blend.ChunkByID(stored.ID), blend.Question([]int32{5})}, &blend.FuseOptions{OnMiss: blend.MissFail})
	wantError(t, err, blend.ErrMismatch)
	_, err = blend.NewKV(0, blend.DtypeF32)
	wantError(t, err, blend.ErrInvalidArgument)
}
