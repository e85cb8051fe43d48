package blend_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"

	"libblend.io/go/blend"
)

func TestVersionAndBackend(t *testing.T) {
	if got := blend.Version(); strings.Count(got, ".") != 2 {
		t.Errorf("version %q", got)
	}
	if got := must(ctx.Backend())(t); !strings.HasPrefix(got, "cpu (") {
		t.Errorf("backend %q", got)
	}
}

func TestModelInfo(t *testing.T) {
	info := must(model.Info())(t)
	if info.Layers != 6 || info.DModel != 128 || info.Heads != 4 || info.KVHeads != 2 ||
		info.HeadDim != 32 || info.DFF != 256 || info.Vocab != 1536 || info.ContextLength != 1024 {
		t.Errorf("not the model of examples/models: %+v", info)
	}
	if !info.AddBOS || info.BOSToken != bos[0] || info.Architecture != "llama" ||
		info.WeightDtype != "f16" || len(info.Fingerprint) != 64 || info.ChatTemplate != "" || info.RoPETheta != 10000 ||
		info.KVBytesPerToken != 6*2*2*32*4 || info.WeightBytes <= 0 {
		t.Errorf("%+v", info)
	}
	short := must(blend.OpenModel(bg, ctx, modelPath, &blend.ModelOptions{MaxContext: 77}))(t)
	defer short.Close()
	if got := must(short.Info())(t).ContextLength; got != 77 {
		t.Errorf("MaxContext 77 gave %d", got)
	}
}

func TestLoras(t *testing.T) {
	adapter := filepath.Join(filepath.Dir(modelPath), "../../tests/conformance/lora/blend-qa.gguf")
	loras := []blend.Lora{{Path: adapter}, {Path: adapter, Scale: -0.25}}
	adapted := must(blend.OpenModel(bg, ctx, modelPath, &blend.ModelOptions{Loras: loras}))(t)
	defer adapted.Close()
	list := must(adapted.Loras())(t)
	if len(list) != 2 || list[0].Path != adapter || list[0].Scale != 1 || list[1].Scale != -0.25 || list[0].Rank != 2 {
		t.Errorf("%+v", list)
	}
	if must(adapted.Info())(t).Fingerprint == must(model.Info())(t).Fingerprint {
		t.Error("the fingerprint says nothing of the adapters")
	}
	_, err := blend.OpenModel(bg, ctx, modelPath, &blend.ModelOptions{Loras: []blend.Lora{{Path: modelPath}}})
	if !errors.Is(err, blend.ErrFormat) {
		t.Errorf("a model is no adapter: %v", err)
	}
}

func TestBOSOnlyWhereTheModelExpectsIt(t *testing.T) {
	data := must(os.ReadFile(modelPath))(t)
	const key = "tokenizer.ggml.add_bos_token"
	at := strings.Index(string(data), key) + len(key) + 4 // past the type
	if data[at] != 1 {
		t.Fatalf("%d is no true", data[at])
	}
	data[at] = 0
	path := filepath.Join(t.TempDir(), "no-bos.gguf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	without := must(blend.OpenModel(bg, ctx, path, nil))(t)
	defer without.Close()
	if info := must(without.Info())(t); info.AddBOS || info.BOSToken < 0 {
		t.Errorf("%+v", info)
	}
	if none := must(without.Tokenize("", blend.TokenizeBOS))(t); len(none) != 0 {
		t.Errorf("BOS is there: %v", none)
	}
	if prompt := must(without.TextPrompt(bg, blend.Documents("a"), "b", nil))(t); len(prompt) != 2 {
		t.Errorf("a chunk and a question: %v", prompt)
	}
}

func TestTokenizeThereAndBack(t *testing.T) {
	for _, text := range []string{"", "a", documents[0], "na\u00efve \u96ea \x00 z", "\xff\xfe"} {
		ids := tokens(t, text)
		if back := must(model.Detokenize(ids, 0))(t); back != text {
			t.Errorf("%q came back as %q", text, back)
		}
	}
	if with := must(model.Tokenize("a", blend.TokenizeBOS))(t); with[0] != bos[0] || len(with) < 2 {
		t.Errorf("no BOS in %v", with)
	}
	// A slice of a longer array, and one with no memory.
	ids := tokens(t, documents[0])
	if part := must(model.Detokenize(ids[2:5:5], blend.TokenizeRaw))(t); part == "" {
		t.Error("a part of a slice gave nothing")
	}
	if none := must(model.Detokenize(nil, 0))(t); none != "" {
		t.Errorf("no tokens gave %q", none)
	}
}

func TestPrecomputeAndFind(t *testing.T) {
	ids := tokens(t, "A chunk that no other test stores.")
	id, there, err := model.FindChunk(store, ids, nil)
	ok(t, err)
	if there {
		t.Fatal("found before it was stored")
	}
	told := 0
	stored := must(model.Precompute(bg, store, ids, &blend.PrecomputeOptions{
		Progress: func(done, total int64) error { told++; return nil }}))(t)
	if stored.Existed || stored.ID != id || told == 0 {
		t.Errorf("%+v, found as %s, progress %d times", stored, id, told)
	}
	if again := must(model.Precompute(bg, store, ids, nil))(t); !again.Existed || again.ID != id {
		t.Errorf("the second time: %+v", again)
	}
	if _, there, err := model.FindChunk(store, ids, nil); err != nil || !there {
		t.Error("not found after it was stored", err)
	}
	for name, other := range map[string]*blend.PrecomputeOptions{
		"tenant": {Tenant: "t"}, "prefix": {ChunkPrefix: bos}} {
		if otherID, _, err := model.FindChunk(store, ids, other); err != nil || otherID == id {
			t.Errorf("%s is not part of the id", name)
		}
	}
}

func TestACorpusServesItselfAsContext(t *testing.T) {
	s := must(blend.OpenStore(ctx, t.TempDir(), nil))(t)
	defer s.Close()
	label := "a.md#1"
	p := blend.Prompt{blend.Prefix(bos)}
	if p.Head() != nil {
		t.Error("a prompt without chunks has a head")
	}
	var chunks []blend.CorpusChunk
	for _, document := range documents {
		chunks = append(chunks, blend.CorpusChunk{Tokens: tokens(t, document), Label: &label})
		p = append(p, blend.Chunk(tokens(t, document)))
	}
	if !reflect.DeepEqual(p.Head(), bos) {
		t.Errorf("the head is %v", p.Head())
	}
	told := 0
	options := &blend.CorpusOptions{ChunkPrefix: p.Head(), Contexts: 1,
		Progress: func(done, total int64) error { told++; return nil }}
	records := must(model.PrecomputeCorpus(bg, s, chunks, options))(t)
	again := must(model.PrecomputeCorpus(bg, s, chunks, options))(t)
	if len(records) != len(documents) || told == 0 {
		t.Errorf("%d records, progress %d times", len(records), told)
	}
	for i, record := range records {
		if record.Existed || record.Contexts != len(documents)-1 || !again[i].Existed ||
			again[i].Contexts != record.Contexts || again[i].ID != record.ID {
			t.Errorf("%+v, and again %+v", record, again[i])
		}
	}
	f := must(model.Fuse(bg, s, append(p, blend.Question(tokens(t, "Who?"))), nil))(t)
	defer f.Close()
	for i := 1; i < len(p); i++ {
		want := blend.RecordContextual
		if i == 1 {
			want = blend.RecordExact
		}
		if segment := must(f.Segments())(t)[i]; segment.Record != want {
			t.Errorf("segment %d is of record %d", i, segment.Record)
		}
	}
	enough := errors.New("enough")
	_, err := model.PrecomputeCorpus(bg, s, chunks, &blend.CorpusOptions{Tenant: "stopped",
		Progress: func(done, total int64) error { return enough }})
	if err != enough {
		t.Errorf("stopped with %v", err)
	}
	if _, err := model.PrecomputeCorpus(bg, s, make([]blend.CorpusChunk, 1), nil); !errors.Is(err, blend.ErrInvalidArgument) {
		t.Errorf("no tokens gave %v", err)
	}
}

func TestContextPassagesMakeAnotherRecord(t *testing.T) {
	s := must(blend.OpenStore(ctx, t.TempDir(), nil))(t)
	defer s.Close()
	chunk := tokens(t, documents[0])
	with := &blend.PrecomputeOptions{Contexts: [][]int32{tokens(t, documents[1]), tokens(t, documents[2])}}
	made := must(model.Precompute(bg, s, chunk, with))(t)
	plain := must(model.Precompute(bg, s, chunk, nil))(t)
	if id, there, err := model.FindChunk(s, chunk, with); made.ID == plain.ID || id != made.ID || !there || err != nil {
		t.Errorf("made %s, plain %s, found %s (%v)", made.ID, plain.ID, id, err)
	}
}

func TestAPredecessorCountsAsTheEndOfTheChunkPrefix(t *testing.T) {
	s := must(blend.OpenStore(ctx, t.TempDir(), nil))(t)
	defer s.Close()
	chunk, before := tokens(t, documents[0]), tokens(t, documents[1])
	after := &blend.PrecomputeOptions{ChunkPrefix: bos, Predecessor: before}
	made := must(model.Precompute(bg, s, chunk, after))(t)
	whole := &blend.PrecomputeOptions{ChunkPrefix: append(append([]int32{}, bos...), before...)}
	if again := must(model.Precompute(bg, s, chunk, whole))(t); !again.Existed || again.ID != made.ID {
		t.Errorf("made %s, after the same tokens %s", made.ID, again.ID)
	}
	after.Contexts = [][]int32{tokens(t, documents[2])}
	if more := must(model.Precompute(bg, s, chunk, after))(t); more.Existed || more.ID == made.ID {
		t.Errorf("one that has seen more is %s, as without", more.ID)
	}
}

func TestAChunkPrefixIsGivenNotGivenOrNothing(t *testing.T) {
	s := must(blend.OpenStore(ctx, t.TempDir(), nil))(t)
	defer s.Close()
	second := tokens(t, documents[1])
	p := blend.Prompt{blend.Prefix(bos), blend.Chunk(tokens(t, documents[0])), blend.Chunk(second),
		blend.Question(tokens(t, "Who?"))}
	for _, prefix := range [][]int32{nil, bos, {}} {
		record := blend.RecordHead
		of := &blend.PrecomputeOptions{ChunkPrefix: bos}
		if prefix != nil && len(prefix) == 0 {
			record, of = blend.RecordAlone, nil
		}
		id, _, err := model.FindChunk(s, second, of)
		ok(t, err)
		f := must(model.Fuse(bg, s, p, &blend.FuseOptions{ChunkPrefix: prefix, OnMiss: blend.MissPrecompute}))(t)
		if segment := must(f.Segments())(t)[2]; segment.Record != record || segment.ID != id {
			t.Errorf("chunk prefix %v: %+v", prefix, segment)
		}
		f.Close()
	}
}

func TestFuseAnswers(t *testing.T) {
	f := fuse(t, &blend.FuseOptions{ReserveTokens: 16})
	var first int32
	ok(t, f.Logits(func(logits []float32) error {
		if len(logits) != 1536 {
			t.Errorf("%d logits", len(logits))
		}
		first = argmax(logits)
		return nil
	}))
	before := must(f.Tokens())(t)
	var ids []int32
	var text strings.Builder
	end := must(f.Generate(bg, &blend.GenerateOptions{MaxTokens: 16}, func(token blend.Token) error {
		ids = append(ids, token.ID)
		text.WriteString(token.Text)
		return nil
	}))(t)
	if got := strings.TrimSpace(text.String()); got != answer {
		t.Errorf("the answer is %q", got)
	}
	if ids[0] != first || end.Tokens != len(ids) || !end.ByStopToken {
		t.Errorf("%+v, tokens %v, the logits said %d", end, ids, first)
	}
	if after := must(f.Tokens())(t); !reflect.DeepEqual(after, append(before, ids...)) {
		t.Errorf("rows %v, after %v", before, after)
	}
}

func TestAccountOfAFuse(t *testing.T) {
	fuse(t, nil) // all chunks are stored
	f := fuse(t, &blend.FuseOptions{Policy: blend.PolicyHKVD, Ratio: 0.25, Metric: blend.MetricK, CheckLayer: 2, Norm: blend.NormL1, Relative: true})
	info := must(f.Info())(t)
	p := prompt(t)
	rows := 0
	for _, s := range p {
		rows += len(s.Tokens)
	}
	if info.Policy != blend.PolicyHKVD || info.Metric != blend.MetricK || info.CheckLayer != 2 ||
		info.Norm != blend.NormL1 || info.Relative != true || info.Ratio != 0.25 || info.Rows != rows ||
		info.Segments != len(p) || info.Hits == 0 || info.Misses != 0 || info.TTFT <= 0 ||
		info.TTFT > time.Minute || info.Flags&blend.FusionUncalibrated == 0 || info.Layers != 6 {
		t.Errorf("%+v", info)
	}
	selected := must(f.Selected())(t)
	if len(selected) != info.RowsSelected || len(selected) == 0 ||
		!sort.SliceIsSorted(selected, func(i, j int) bool { return selected[i] < selected[j] }) {
		t.Errorf("%d selected rows: %v", info.RowsSelected, selected)
	}
	inSegments := 0
	for i := range p {
		s := must(f.Segments())(t)[i]
		inSegments += s.RowsSelected
		if s.Kind != p[i].Kind || s.Rows != len(p[i].Tokens) {
			t.Errorf("segment %d: %+v", i, s)
		}
		if s.Kind == blend.SegmentChunk && (s.Source != blend.SourceStore || len(s.ID) != 64) {
			t.Errorf("segment %d was not from the store: %+v", i, s)
		}
	}
	if inSegments != len(selected) {
		t.Errorf("the segments have %d selected rows of %d", inSegments, len(selected))
	}
	ok(t, f.Deviation(func(deviation []float32) error {
		if len(deviation) != rows {
			t.Errorf("%d deviations of %d rows", len(deviation), rows)
		}
		least := float32(math.Inf(1))
		for _, row := range selected {
			if deviation[row] < least {
				least = deviation[row]
			}
		}
		if least <= 0 {
			t.Error("a row without deviation was selected")
		}
		return nil
	}))
	last := must(f.Layers())(t)[5]
	if last.Layer != 5 || last.ComputeEnd < last.ComputeBegin || last.RowsPlaced == 0 {
		t.Errorf("%+v", last)
	}
}

func TestPolicies(t *testing.T) {
	n := must(fuse(t, nil).Info())(t).RowsReused
	half := func(policy blend.Policy, more blend.FuseOptions) {
		t.Helper()
		more.Policy, more.Ratio = policy, 0.5
		info := must(fuse(t, &more).Info())(t)
		if info.Policy != policy || info.RowsSelected < n/2-2 || info.RowsSelected > n/2+2 {
			t.Errorf("policy %d selected %d of %d", policy, info.RowsSelected, n)
		}
	}
	half(blend.PolicyHKVD, blend.FuseOptions{})
	half(blend.PolicyFirstK, blend.FuseOptions{})
	half(blend.PolicyRandom, blend.FuseOptions{Seed: 3})
	half(blend.PolicyQuestion, blend.FuseOptions{})
	half(blend.PolicyUnion, blend.FuseOptions{Terms: []blend.Term{{blend.PolicyHKVD, 1}, {blend.PolicyFirstK, 1}}})
	if info := must(fuse(t, &blend.FuseOptions{Ratio: blend.RatioNone}).Info())(t); info.RowsSelected != 0 || info.Ratio != 0 {
		t.Errorf("RatioNone selected %d", info.RowsSelected)
	}
	named := must(fuse(t, &blend.FuseOptions{Ratio: blend.RatioFidelity}).Info())(t)
	if own := must(fuse(t, nil).Info())(t); named.Ratio != own.Ratio || named.Ratio <= 0 {
		t.Errorf("RatioFidelity %g, the default %g", named.Ratio, own.Ratio)
	}
	if info := must(fuse(t, &blend.FuseOptions{Policy: blend.PolicyFull}).Info())(t); info.RowsReused != 0 {
		t.Errorf("PolicyFull reused %d", info.RowsReused)
	}
	if info := must(fuse(t, &blend.FuseOptions{Policy: blend.PolicyAPE, APETemperature: 0.8, APEScale: 0.7}).Info())(t); info.RowsTempered == 0 {
		t.Errorf("PolicyAPE: %+v", info)
	}
	for _, wrong := range []blend.FuseOptions{{APETemperature: -1}, {APEScale: -1}} {
		wrong.Policy = blend.PolicyAPE
		_, err := model.Fuse(bg, store, prompt(t), &wrong)
		wantError(t, err, blend.ErrInvalidArgument)
	}
	layers := must(model.DefaultCheckLayers(0.3, 1, 3))(t)
	if len(layers) != 3 || layers[0].Layer != 1 || layers[2].Ratio >= layers[0].Ratio {
		t.Errorf("%v", layers)
	}
	if info := must(fuse(t, &blend.FuseOptions{CheckLayers: layers}).Info())(t); info.CheckLayers != 3 {
		t.Errorf("%d check layers", info.CheckLayers)
	}
}

func TestScoreChooses(t *testing.T) {
	var wanted []uint32
	f := fuse(t, &blend.FuseOptions{Policy: blend.PolicyCallback, Ratio: 0.2, Score: func(s *blend.Scoring) error {
		if s.Layer != 1 || len(s.Rows) != len(s.Scores) || s.Deviation[3] != s.Scores[3] {
			t.Errorf("%d rows at layer %d", len(s.Rows), s.Layer)
		}
		for i, row := range s.Rows {
			s.Scores[i] = float32(row) // the last ones
		}
		wanted = append([]uint32{}, s.Rows...)
		return nil
	}})
	selected := must(f.Selected())(t)
	if len(selected) == 0 || !reflect.DeepEqual(selected, wanted[len(wanted)-len(selected):]) {
		t.Errorf("selected %v of %v", selected, wanted)
	}
}

func TestDecodeReplaceErase(t *testing.T) {
	f := fuse(t, &blend.FuseOptions{Policy: blend.PolicyFull, ReserveTokens: 8})
	before := must(f.Tokens())(t)
	more := tokens(t, answer)
	ok(t, f.Decode(bg, more))
	if after := must(f.Tokens())(t); !reflect.DeepEqual(after, append(before, more...)) {
		t.Errorf("decoded %v: %v", more, after)
	}
	ok(t, f.Erase(bg, len(before), len(more)))
	if after := must(f.Tokens())(t); !reflect.DeepEqual(after, before) {
		t.Errorf("erased: %v", after)
	}
	ok(t, f.Replace(bg, 1, 2, []int32{7, 8, 9}))
	want := append(append([]int32{before[0]}, 7, 8, 9), before[3:]...)
	if after := must(f.Tokens())(t); !reflect.DeepEqual(after, want) {
		t.Errorf("replaced: %v", after)
	}
	if info := must(f.Info())(t); info.Flags&blend.FusionEdited == 0 {
		t.Error("the info does not say that it was edited")
	}
}

func TestForksGoOnByThemselves(t *testing.T) {
	options := &blend.GenerateOptions{MaxTokens: 6, IgnoreEOS: true}
	want, _ := generated(t, fuse(t, &blend.FuseOptions{ReserveTokens: 16}), options)
	f := fuse(t, &blend.FuseOptions{ReserveTokens: 16})
	before := must(f.Tokens())(t)
	fork := must(f.Fork())(t)
	defer fork.Close()
	ok(t, f.Decode(bg, []int32{7}))
	if after := must(fork.Tokens())(t); !reflect.DeepEqual(after, before) {
		t.Errorf("the fork has %v, not %v", after, before)
	}
	ok(t, f.Close())
	if got, _ := generated(t, fork, options); !reflect.DeepEqual(got, want) {
		t.Errorf("the fork goes on with %v, a fuse of its own with %v", got, want)
	}
}

func TestExactAfterAMoment(t *testing.T) {
	options := &blend.GenerateOptions{MaxTokens: 6, IgnoreEOS: true}
	full := fuse(t, &blend.FuseOptions{ReserveTokens: 16, Policy: blend.PolicyFull})
	begin := len(must(full.Tokens())(t))
	generated(t, full, options)
	want := must(full.Tokens())(t)[begin:]
	f := fuse(t, &blend.FuseOptions{ReserveTokens: 16, Policy: blend.PolicyReuse})
	if kept := must(f.MakeExact(bg, nil))(t); kept != 0 {
		t.Errorf("%d of no tokens were kept", kept)
	}
	if info := must(f.Info())(t); info.Flags&blend.FusionExact == 0 {
		t.Error("the info does not say that it is exact")
	}
	shown := append([]int32(nil), want...)
	shown[3] = (want[3] + 1) % 100 // none of full prefill's
	if kept := must(f.MakeExact(bg, shown))(t); kept != 3 {
		t.Errorf("%d tokens were kept, not 3", kept)
	}
	generated(t, f, &blend.GenerateOptions{MaxTokens: len(want) - 3, IgnoreEOS: true})
	if got := must(f.Tokens())(t)[begin:]; !reflect.DeepEqual(got, want) {
		t.Errorf("it goes on with %v, full prefill with %v", got, want)
	}
}

func TestConversationSavedAndRestored(t *testing.T) {
	f := fuse(t, &blend.FuseOptions{ReserveTokens: 64})
	generated(t, f, nil)
	next := blend.Prompt{blend.Chunk(tokens(t, documents[3])), blend.Question(tokens(t, "Question: What is guarded?\nAnswer:"))}
	ok(t, f.Extend(bg, store, next, &blend.FuseOptions{ReserveTokens: 32}))
	id := must(f.Save(bg, store, &blend.SaveOptions{Tenant: "tenant"}))(t)
	want, _ := generated(t, f, &blend.GenerateOptions{MaxTokens: 6, IgnoreEOS: true})
	ok(t, store.Flush())
	_, err := model.Restore(bg, store, id, nil)
	wantError(t, err, blend.ErrNotFound)
	restored := must(model.Restore(bg, store, id, &blend.RestoreOptions{Tenant: "tenant", ReserveTokens: 16}))(t)
	defer restored.Close()
	if got, _ := generated(t, restored, &blend.GenerateOptions{MaxTokens: 6, IgnoreEOS: true}); got != want {
		t.Errorf("restored it says %q, before %q", got, want)
	}
	if info := must(restored.Info())(t); info.Flags&blend.FusionRestored == 0 {
		t.Error("the info does not say that it was restored")
	}
}

func TestAnotherTenantsChunkIsNotThere(t *testing.T) {
	id := must(model.Precompute(bg, store, tokens(t, "Of acme, and of nobody else."), &blend.PrecomputeOptions{Tenant: "acme"}))(t).ID
	prompt := blend.Prompt{blend.ChunkByID(id), blend.Question([]int32{5})}
	for _, tenant := range []string{"", "evil"} {
		_, err := model.Fuse(bg, store, prompt, &blend.FuseOptions{Tenant: tenant})
		wantError(t, err, blend.ErrNotFound)
		for _, c := range must(store.List(&blend.FilterOptions{Tenant: given(tenant)}, false))(t) {
			if c.ID == id {
				t.Errorf("%q sees it", tenant)
			}
		}
		wantError(t, store.Remove(id, &blend.TenantOptions{Tenant: given(tenant)}), blend.ErrNotFound)
	}
	ok(t, must(model.Fuse(bg, store, prompt, &blend.FuseOptions{Tenant: "acme"}))(t).Close())
	if list := must(store.List(&blend.FilterOptions{Tenant: given("acme")}, true))(t); len(list) != 1 || list[0].ID != id {
		t.Errorf("%+v", list)
	}
	ok(t, store.Remove(id, &blend.TenantOptions{Tenant: given("acme")}))
}

func TestNegativeCountsAreRefused(t *testing.T) {
	f := fuse(t, &blend.FuseOptions{ReserveTokens: 8})
	_, err := f.Generate(bg, &blend.GenerateOptions{Threads: -1}, nil)
	wantError(t, err, blend.ErrInvalidArgument)
	_, err = f.Generate(bg, &blend.GenerateOptions{MaxTokens: -5}, nil)
	if err == nil {
		return // less than 0 is 0, as the option says
	}
	wantError(t, err, blend.ErrInvalidArgument)
}

func TestGenerateOptions(t *testing.T) {
	f := func() *blend.Fusion { return fuse(t, &blend.FuseOptions{ReserveTokens: 12}) }
	var first int32
	fused := f()
	_, end := generated(t, fused, &blend.GenerateOptions{MaxTokens: 2, IgnoreEOS: true})
	if end != (blend.Generation{Tokens: 2}) {
		t.Errorf("MaxTokens 2: %+v", end)
	}
	all := must(fused.Tokens())(t)
	first = all[len(all)-2]
	if _, end = generated(t, f(), &blend.GenerateOptions{StopTokens: []int32{first}}); end != (blend.Generation{ByStopToken: true}) {
		t.Errorf("a stop token as the first: %+v", end)
	}
	hot := blend.GenerateOptions{MaxTokens: 12, Temperature: 3, TopP: 0.99, TopK: 400, IgnoreEOS: true, Seed: 5}
	one, _ := generated(t, f(), &hot)
	if two, _ := generated(t, f(), &hot); two != one {
		t.Errorf("one seed gave %q and %q", one, two)
	}
	hot.Seed = 6
	if two, _ := generated(t, f(), &hot); two == one {
		t.Errorf("two seeds gave %q", one)
	}
}

func TestGrammar(t *testing.T) {
	grammar, err := blend.OpenGrammar(bg, model, &blend.GrammarOptions{Language: blend.GrammarRegex, Text: "[xy]{3}"})
	if errors.Is(err, blend.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, end := generated(t, fuse(t, &blend.FuseOptions{ReserveTokens: 12}), &blend.GenerateOptions{Grammar: grammar})
	if len(text) != 3 || strings.Trim(text, "xy") != "" || !end.ByStopToken {
		t.Errorf("%q, %+v", text, end)
	}
	if _, err := blend.OpenGrammar(bg, model, &blend.GrammarOptions{Language: blend.GrammarJsonSchema, Text: "{"}); !errors.Is(err, blend.ErrInvalidArgument) {
		t.Errorf("no schema: %v", err)
	}
	if err := grammar.Close(); err != nil {
		t.Error(err)
	}
	if _, err := fuse(t, nil).Generate(bg, &blend.GenerateOptions{Grammar: grammar}, nil); !errors.Is(err, blend.ErrClosed) {
		t.Errorf("a closed grammar: %v", err)
	}
}

func TestSampling(t *testing.T) {
	f := func() *blend.Fusion { return fuse(t, &blend.FuseOptions{ReserveTokens: 12}) }
	ids := func(options blend.GenerateOptions) (found []blend.Token) {
		t.Helper()
		options.MaxTokens, options.IgnoreEOS = 6, true
		must(f().Generate(bg, &options, func(token blend.Token) error {
			found = append(found, token)
			return nil
		}))(t)
		return
	}
	plain := ids(blend.GenerateOptions{})
	text, _ := generated(t, f(), &blend.GenerateOptions{MaxTokens: 6, IgnoreEOS: true})
	stop := text[len(text)/2 : len(text)/2+2]
	got, end := generated(t, f(), &blend.GenerateOptions{MaxTokens: 6, IgnoreEOS: true, Stop: []string{"\x00", stop}})
	if want := strings.TrimSpace(text[:strings.Index(text, stop)]); got != want || !end.ByStopToken {
		t.Errorf("stopped before %q: %q, want %q, %+v", stop, got, want, end)
	}
	never := float32(math.Inf(-1))
	for _, token := range ids(blend.GenerateOptions{LogitBias: map[int32]float32{plain[0].ID: never}}) {
		if token.ID == plain[0].ID {
			t.Error("a forbidden token came")
		}
	}
	first := ids(blend.GenerateOptions{TopLogprobs: 2})[0]
	if len(first.Logprobs) != 3 || first.Logprobs[0] != first.Logprobs[1] || first.Logprobs[0].ID != first.ID || first.Logprobs[0].Logprob > 0 ||
		first.Logprobs[2].Logprob > first.Logprobs[1].Logprob {
		t.Errorf("logprobs of %d: %+v", first.ID, first.Logprobs)
	}
	calls := 0
	changed := ids(blend.GenerateOptions{Logits: func(logits []float32) error {
		for i := range logits {
			if i != 100+calls {
				logits[i] = never
			}
		}
		calls++
		return nil
	}})
	if calls != 6 || changed[0].ID != 100 || changed[5].ID != 105 {
		t.Errorf("%d calls, %+v", calls, changed)
	}
	own := errors.New("own")
	for want, err := range map[error]error{own: own, nil: blend.Stop} {
		fused := f()
		_, got := fused.Generate(bg, &blend.GenerateOptions{Logits: func([]float32) error { return err }}, nil)
		if got != want {
			t.Errorf("%v gave %v", err, got)
		}
		must(fused.Generate(bg, &blend.GenerateOptions{MaxTokens: 1}, nil))(t) // free again
	}
}

func TestBatch(t *testing.T) {
	good := prompt(t)
	results := must(model.FuseBatch(bg, store, []blend.Request{
		{Prompt: good}, {Prompt: blend.Prompt{}}, {Prompt: good, Options: &blend.FuseOptions{Ratio: 0.3}}}))(t)
	if len(results) != 3 || results[0].Err != nil || results[2].Err != nil || results[1].Fusion != nil {
		t.Fatalf("%+v", results)
	}
	wantError(t, results[1].Err, blend.ErrInvalidArgument)
	if got, _ := generated(t, results[0].Fusion, nil); got != answer {
		t.Errorf("%q", got)
	}
	ok(t, results[0].Fusion.Close())
	if info := must(results[2].Fusion.Info())(t); info.Ratio != 0.3 {
		t.Errorf("ratio %v", info.Ratio)
	}
	ok(t, results[2].Fusion.Close())
	if none := must(model.FuseBatch(bg, store, nil))(t); len(none) != 0 {
		t.Errorf("no requests gave %d results", len(none))
	}
}

func TestStore(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "s")
	s := must(blend.OpenStore(ctx, folder, &blend.StoreOptions{QuotaBytes: 1 << 30, Codec: blend.CodecZstd, KVDtype: blend.DtypeF32}))(t)
	stored := must(model.Precompute(bg, s, tokens(t, documents[0]), nil))(t)
	plain := must(model.Precompute(bg, s, tokens(t, documents[1]), &blend.PrecomputeOptions{Codec: blend.CodecNone}))(t)
	list := must(s.List(nil, true))(t)
	if len(list) != 2 {
		t.Fatalf("%d chunks", len(list))
	}
	for _, c := range list {
		codec := map[blend.ChunkID]blend.Codec{stored.ID: blend.CodecZstd, plain.ID: blend.CodecNone}[c.ID]
		if c.Codec != codec || c.KVDtype != blend.DtypeF32 || c.Problem != "" || c.Layers != 6 || c.KVDim != 64 ||
			c.Bytes != int64(c.Tokens)*6*2*64*4 || time.Since(c.Created) > time.Hour {
			t.Errorf("%+v", c)
		}
	}
	if stat := must(s.CodecStat(blend.CodecZstd))(t); stat.Chunks != 1 || stat.StoredBytes >= stat.Bytes {
		t.Errorf("%+v", stat)
	}
	ok(t, s.Remove(plain.ID, nil))
	f := must(model.Fuse(bg, s, blend.Prompt{blend.ChunkByID(stored.ID), blend.Question([]int32{5})}, nil))(t)
	ok(t, f.Close())
	if stat := must(s.Stat())(t); stat.Chunks != 1 || stat.Hits != 1 || stat.QuotaBytes != 1<<30 || stat.Written != 2 {
		t.Errorf("%+v", stat)
	}
	ok(t, s.Flush())
	ok(t, s.Close())
	if _, err := os.Stat(folder); err != nil {
		t.Error(err)
	}
}

func samples(t *testing.T) []blend.Prompt {
	var list []blend.Prompt
	for i := 0; i < 4; i++ {
		list = append(list, blend.Prompt{blend.Prefix(bos), blend.Chunk(tokens(t, documents[i])),
			blend.Chunk(tokens(t, documents[i+1])), blend.Question(tokens(t, "Question: Who works?\nAnswer:"))})
	}
	return list
}

func TestCalibrateAndVerify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile")
	var lines []blend.Measurement
	trusted := must(model.Calibrate(bg, samples(t), path, &blend.CalibrateOptions{
		ChunkPrefixes: [][]int32{bos}, Ratios: []float64{0.2, 1}, ScoreTokens: 4, Metrics: []blend.Metric{blend.MetricKV},
		OnMeasurement: func(m blend.Measurement) error { lines = append(lines, m); return nil }}))(t)
	profile := must(blend.OpenProfile(model, path))(t)
	defer profile.Close()
	info := must(profile.Info())(t)
	if info.Trusted != trusted || info.Measurements != len(lines) || len(lines) == 0 || info.Metric != blend.MetricKV {
		t.Errorf("%v, %d lines, %+v", trusted, len(lines), info)
	}
	for i := range lines {
		if got := must(profile.Measurements())(t)[i]; !reflect.DeepEqual(got, lines[i]) {
			t.Errorf("line %d: %+v, told %+v", i, got, lines[i])
		}
	}
	if prefix := must(profile.ChunkPrefix())(t); !reflect.DeepEqual(prefix, bos) {
		t.Errorf("chunk prefix %v", prefix)
	}
	if steps := must(profile.LayerSteps())(t); len(steps) != 0 {
		t.Errorf("a few samples say nothing of layers' steps: %v", steps)
	}
	_, lossless := profile.CodecCost(blend.CodecZstd)
	wantError(t, lossless, blend.ErrNotFound)
	if cost, err := profile.CodecCost(blend.CodecInt8); info.Ratio < 1 && (err != nil || cost.Codec != blend.CodecInt8 || cost.Bits < 7) {
		t.Errorf("%+v %v", cost, err)
	}
	ok(t, store.SetCodecProfile(profile))
	options := blend.FuseOptions{ReserveTokens: 8, Profile: profile}
	if fused := must(fuse(t, &options).Info())(t); fused.Flags&blend.FusionUncalibrated != 0 || fused.Ratio != info.Ratio ||
		fused.Policy != info.Policy {
		t.Errorf("the profile was not used: %+v", fused)
	}
	options.CheckLayer = 2 // nothing was measured there
	if fused := must(fuse(t, &options).Info())(t); fused.Flags&blend.FusionUntrusted == 0 {
		t.Error("nothing vouches for layer 2")
	}
	options.OnUntrusted = blend.OnUntrustedFull
	if fused := must(fuse(t, &options).Info())(t); fused.Policy != blend.PolicyFull || fused.Flags&blend.FusionUntrusted != 0 {
		t.Errorf("%+v", fused)
	}
	options.OnUntrusted = blend.OnUntrustedFail
	_, err := model.Fuse(bg, store, prompt(t), &options)
	wantError(t, err, blend.ErrUntrusted)
	verdict := must(model.Verify(bg, profile, samples(t), &blend.VerifyOptions{ScoreTokens: 2, Ratios: []float64{1}, MaxKL: 100, MinTop1: 1e-9}))(t)
	if !verdict.Trusted || verdict.Ratio != info.Ratio {
		t.Errorf("%+v", verdict)
	}
	if info.DriftInputs != 0 {
		if k, v, err := profile.Drift(4); err != nil || k > 1 || v > 1 {
			t.Errorf("drift %v %v %v", k, v, err)
		}
	}
}

// Tests in C check what the calls keep of it; here, that it arrives, and that the answers are the same.
func TestThreads(t *testing.T) {
	two := must(blend.NewContext(&blend.ContextOptions{Threads: 2}))(t)
	defer two.Close()
	m := must(blend.OpenModel(bg, two, modelPath, nil))(t)
	defer m.Close()
	for _, n := range []int{1, 2, 7} {
		machine := must(blend.OpenMachine(bg, m, "", &blend.MachineOptions{MaxTokens: 64, Threads: n}))(t)
		want := 2
		if n == 1 {
			want = 1
		}
		if info := must(machine.Info())(t); info.Threads != want {
			t.Errorf("%d threads were timed for %d", info.Threads, n)
		}
		ok(t, machine.Close())
		must(m.Precompute(bg, store, tokens(t, "Of threads."), &blend.PrecomputeOptions{Threads: n}))(t)
		fused := must(m.Fuse(bg, store, prompt(t), &blend.FuseOptions{Threads: n}))(t)
		if got, _ := generated(t, fused, &blend.GenerateOptions{Threads: 3 - n%3}); got != answer {
			t.Errorf("%d threads: %q", n, got)
		}
		ok(t, fused.Close())
	}
	_, err := blend.NewContext(&blend.ContextOptions{Threads: 1024, PinThreads: true})
	wantError(t, err, blend.ErrInvalidArgument)
	pinned := must(blend.NewContext(&blend.ContextOptions{PinThreads: true, DeviceBytes: 1 << 20}))(t)
	ok(t, pinned.Close())
	small := must(blend.NewContext(&blend.ContextOptions{CacheDtype: blend.DtypeF16}))(t)
	halved := must(blend.OpenModel(bg, small, modelPath, nil))(t)
	if is, was := must(halved.Info())(t), must(model.Info())(t); 2*is.KVBytesPerToken != was.KVBytesPerToken {
		t.Errorf("%d bytes a token in f16, %d in f32", is.KVBytesPerToken, was.KVBytesPerToken)
	}
	ok(t, halved.Close())
	ok(t, small.Close())
}

func TestMachine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "machine")
	machine := must(blend.OpenMachine(bg, model, path, &blend.MachineOptions{MaxTokens: 64}))(t)
	defer machine.Close()
	info := must(machine.Info())(t)
	if info.Kept || info.Points == 0 || info.CPU == "" || time.Since(info.Measured) > time.Hour {
		t.Errorf("%+v", info)
	}
	points := must(machine.Points())(t)
	if len(points) != info.Points || points[0].Tokens <= 0 || points[0].Prefill <= 0 {
		t.Errorf("%+v", points)
	}
	whole := must(machine.RecomputeTime(1000, 1))(t)
	if half := must(machine.RecomputeTime(1000, 0.5))(t); half <= 0 || half >= whole {
		t.Errorf("half takes %v, the whole %v", half, whole)
	}
	again := must(blend.OpenMachine(bg, model, path, nil))(t)
	if !must(again.Info())(t).Kept {
		t.Error("the file was not used")
	}
	ok(t, again.Close())
	advices := must(machine.Advise([]blend.Storage{{1e12, 5}, {1e3, 1}}, nil))(t)
	if len(advices) != 2 || advices[0].Flags&blend.AdviceNoDelay == 0 || advices[1].Flags&blend.AdviceSlowerThanPrefill == 0 ||
		advices[0].LoadTime >= advices[1].LoadTime {
		t.Errorf("%+v", advices)
	}
	fuse(t, &blend.FuseOptions{Ratio: blend.RatioAuto})
	if info := must(fuse(t, &blend.FuseOptions{Ratio: blend.RatioAuto, Machine: machine}).Info())(t); info.Flags&blend.FusionRatioChosen == 0 {
		t.Errorf("the controller chose nothing: %+v", info)
	}
}
