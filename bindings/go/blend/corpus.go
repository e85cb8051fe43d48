package blend

import (
	"context"
	"runtime"

	"libblend.io/go/internal/raw"
)

// CorpusOptions are options of PrecomputeCorpus. The zero value has the defaults.
type CorpusOptions struct {
	// ChunkPrefix is prefilled before every chunk and not stored; part of the ids. Give the Head of the
	// prompts that will hold the chunks.
	ChunkPrefix []int32
	//blend:fields corpus_options
	// Progress is told the chunks done, head and contextual records counted apart; an error stops the
	// call, which gives it back.
	Progress func(done, total int64) error
}

func (options *CorpusOptions) make() (CorpusOptions, raw.CorpusOptions) {
	o := given(options)
	r := raw.NewCorpusOptions()
	//blend:set corpus_options
	r.Set_chunk_prefix(o.ChunkPrefix)
	return o, r
}

// CorpusChunk is one text of a corpus, with what it is called.
type CorpusChunk struct {
	Tokens []int32
	Label  *string // by custom "document#part"; nil leaves the one that it has, "" removes it
	Tags   *string // words with one space between; likewise
}

// CorpusRecord is the result for one text of a corpus.
type CorpusRecord struct {
	ID       ChunkID // of the contextual record, or of the one after the head alone
	Existed  bool    // it was there already: nothing was computed
	Contexts int     // passages of the contextual record; 0: there is none, since no other chunk is similar
}

// PrecomputeCorpus stores the chunks of a corpus so that they serve each other as context: each after
// options.ChunkPrefix alone, and in the context of the chunks that are most similar to it. It returns
// a record for each chunk, in their order. A call that was stopped goes on where it ended when it is made again.
// options may be nil. Errors name the chunk; they are those of Precompute.
func (m *Model) PrecomputeCorpus(ctx context.Context, s *Store, chunks []CorpusChunk, options *CorpusOptions) ([]CorpusRecord, error) {
	if m == nil || m.raw == nil {
		return nil, closed("model")
	}
	if s == nil || s.raw == nil {
		return nil, closed("store")
	}
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(s)
	o, r := options.make()
	defer raw.DeleteCorpusOptions(r)
	corpus := makeCorpus(chunks)
	defer raw.DeleteCorpus(corpus)
	c, err := begin(ctx, listen(listener{progress: o.Progress}))
	if err != nil {
		return nil, err
	}
	c.set(r)
	made := m.raw.Precompute_corpus(s.raw, corpus, r, c.out)
	defer raw.DeleteCorpusRecords(made)
	if err := c.end(); err != nil {
		return nil, err
	}
	return takenRecords(made)
}

func makeCorpus(chunks []CorpusChunk) raw.Corpus {
	made := raw.NewCorpus()
	for _, chunk := range chunks {
		made.Add(chunk.Tokens)
		if chunk.Label != nil {
			made.Set_label(*chunk.Label)
		}
		if chunk.Tags != nil {
			made.Set_tags(*chunk.Tags)
		}
	}
	return made
}

func takenRecords(made raw.CorpusRecords) (records []CorpusRecord, err error) {
	err = simple(func(out raw.Outcome) {
		for i := int64(0); i < made.Size() && out.Code() >= 0; i++ {
			records = append(records, CorpusRecord{ID: ChunkID(made.Id(i, out)), Existed: made.Existed(i),
				Contexts: int(made.N_contexts(i))})
		}
	})
	return records, err
}
