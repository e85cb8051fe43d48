package retrieval

import (
	"math"
	"reflect"
	"testing"
)

func TestBM25(t *testing.T) {
	index := BM25{}
	for _, text := range []string{"the cat sat", "The cat, the cat!", "a dog"} {
		index.Add(Chunk{Text: text})
	}
	// By hand: 3 chunks, mean length 3; "cat" is in two of them.
	idf := math.Log(1 + (3-2+0.5)/(2+0.5))
	for i, want := range []float64{idf * 2.2 / (1 + 1.2), idf * 2 * 2.2 / (2 + 1.2*(0.25+0.75*4/3)), 0} {
		if got := index.score(i, []string{"cat"}); math.Abs(got-want) > 1e-12 {
			t.Errorf("chunk %d: %v, want %v", i, got, want)
		}
	}
	if got := index.Best("dog cat", 2); len(got) != 2 || got[1].Text != "a dog" {
		t.Errorf("%v", got)
	}
	if got := (&BM25{}).Best("dog", 2); len(got) != 0 {
		t.Errorf("%v of nothing", got)
	}
}

func TestCutting(t *testing.T) {
	if got := paragraphs("a\nb\n\n \n\nc  d\n"); !reflect.DeepEqual(got, []string{"a b", "c d"}) {
		t.Errorf("%q", got)
	}
	if got := sentences("One. Two?  Three"); !reflect.DeepEqual(got, []string{"One.", "Two?", "Three"}) {
		t.Errorf("%q", got)
	}
}
