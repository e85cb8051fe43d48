package blend

import "libblend.io/go/internal/raw"

// Segment is a part of a prompt. Prefix, Chunk, ChunkByID, Text and Question make them.
type Segment struct {
	Kind   SegmentKind
	Tokens []int32
	ID     ChunkID // of a chunk given without its tokens
}

// Prompt is what is fused: segments in their order.
type Prompt []Segment

// Prefix is reused exactly: BOS, a system prompt. It stands before all other kinds.
func Prefix(tokens []int32) Segment { return Segment{Kind: SegmentPrefix, Tokens: tokens} }

// Chunk is stored after the prompt's head and reused anywhere. Its text is tokenized by itself, without BOS.
// White space at its ends is part of it: "Ada.\n" is another chunk than "Ada.". Model.FuseTexts takes that away.
func Chunk(tokens []int32) Segment { return Segment{Kind: SegmentChunk, Tokens: tokens} }

// ChunkByID is a chunk that the store must have.
func ChunkByID(id ChunkID) Segment { return Segment{Kind: SegmentChunk, ID: id} }

// Text is always computed and never stored.
func Text(tokens []int32) Segment { return Segment{Kind: SegmentText, Tokens: tokens} }

// Question is always computed, and comes last.
func Question(tokens []int32) Segment { return Segment{Kind: SegmentQuestion, Tokens: tokens} }

// Head gives the tokens before the first chunk: chunks are precomputed after them. nil where there is no
// chunk.
func (p Prompt) Head() []int32 {
	var head []int32
	for _, s := range p {
		if s.Kind == SegmentChunk {
			return head
		}
		head = append(head, s.Tokens...)
	}
	return nil
}

// make copies the segments; the caller deletes what it gets.
func (p Prompt) make() (raw.Prompt, error) {
	made := raw.NewPrompt()
	for i, s := range p {
		if s.ID == "" {
			made.Add(uint(s.Kind), s.Tokens)
			continue
		}
		if s.Kind != SegmentChunk || len(s.Tokens) > 0 {
			raw.DeletePrompt(made)
			return nil, invalid("segment %d has an id: it must be a chunk, without tokens", i)
		}
		made.Add_chunk_id(string(s.ID))
	}
	return made, nil
}

// takenPrompt copies the segments of what the library made.
func takenPrompt(made raw.Prompt, out raw.Outcome) (prompt Prompt) {
	for i := int64(0); i < made.Size() && out.Code() >= 0; i++ {
		segment := Segment{Kind: SegmentKind(made.Kind(i)), ID: ChunkID(made.Chunk_id(i))}
		if segment.ID == "" {
			segment.Tokens = taken[int32](made.Tokens(i, out))
		}
		prompt = append(prompt, segment)
	}
	return prompt
}

func makeSamples(samples []Prompt) (raw.Samples, error) {
	made := raw.NewSamples()
	for _, sample := range samples {
		prompt, err := sample.make()
		if err != nil {
			raw.DeleteSamples(made)
			return nil, err
		}
		made.Add(prompt)
		raw.DeletePrompt(prompt)
	}
	return made, nil
}
