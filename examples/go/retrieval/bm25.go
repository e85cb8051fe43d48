package retrieval

import (
	"math"
	"regexp"
	"sort"
	"strings"
)

// BM25 is Okapi BM25 over chunks. Not for several goroutines while chunks are added.
type BM25 struct {
	Chunks   []Chunk
	counts   []map[string]int
	lengths  []int
	total    int
	withWord map[string]int
}

const (
	k1 = 1.2
	b  = 0.75
)

var word = regexp.MustCompile(`[\pL\pN_]+`)

func words(text string) []string { return word.FindAllString(strings.ToLower(text), -1) }

// Add adds a chunk.
func (index *BM25) Add(chunk Chunk) {
	if index.withWord == nil {
		index.withWord = map[string]int{}
	}
	counts := map[string]int{}
	all := words(chunk.Text)
	for _, w := range all {
		counts[w]++
	}
	for w := range counts {
		index.withWord[w]++
	}
	index.Chunks = append(index.Chunks, chunk)
	index.counts = append(index.counts, counts)
	index.lengths = append(index.lengths, len(all))
	index.total += len(all)
}

// score is of chunk i.
func (index *BM25) score(i int, query []string) float64 {
	n := float64(len(index.Chunks))
	mean := math.Max(float64(index.total)/n, 1e-9)
	sum := 0.0
	for _, w := range query {
		f := float64(index.counts[i][w])
		if f == 0 {
			continue
		}
		df := float64(index.withWord[w])
		idf := math.Log(1 + (n-df+0.5)/(df+0.5))
		sum += idf * f * (k1 + 1) / (f + k1*(1-b+b*float64(index.lengths[i])/mean))
	}
	return sum
}

// Best gives the top chunks of the highest score, in the order they were added.
func (index *BM25) Best(query string, top int) []Chunk {
	asked := words(query)
	scores := make([]float64, len(index.Chunks))
	ranked := make([]int, len(index.Chunks))
	for i := range ranked {
		scores[i], ranked[i] = index.score(i, asked), i
	}
	sort.SliceStable(ranked, func(i, j int) bool { return scores[ranked[i]] > scores[ranked[j]] })
	if len(ranked) > top {
		ranked = ranked[:top]
	}
	sort.Ints(ranked)
	best := make([]Chunk, len(ranked))
	for i, at := range ranked {
		best[i] = index.Chunks[at]
	}
	return best
}
