package blend

import (
	"context"
	"runtime"

	"libblend.io/go/internal/raw"
)

// Document is what an answer is to be found in: a passage of a few hundred tokens. White space at the ends of Text
// does not count. Title is for chat templates that write titles, and the label of the stored chunk.
type Document struct {
	Text  string
	Title string
}

// Documents gives documents without titles.
func Documents(texts ...string) []Document {
	documents := make([]Document, len(texts))
	for i, text := range texts {
		documents[i].Text = text
	}
	return documents
}

// TextOptions say how documents and a question, all of them text, become a prompt. The zero value has the
// defaults: the model's chat template where it has one, else plain text. Give the same to PrecomputeTexts and
// FuseTexts.
type TextOptions struct {
	//blend:fields text_options
}

func (options *TextOptions) make() raw.TextOptions {
	o := given(options)
	r := raw.NewTextOptions()
	//blend:set text_options
	return r
}

func makeTexts(documents []Document) raw.Texts {
	texts := raw.NewTexts()
	for _, document := range documents {
		texts.Add_document(document.Text, document.Title)
	}
	return texts
}

// FuseTexts fuses documents and a question, all of them text: BOS, the chat template, tokens, chunks and what they
// are looked for after are the library's. What PrecomputeTexts stored is loaded; another document is computed, and
// stored afterwards. s may be nil: then all is computed. texts and options may be nil. Errors: ErrInvalidArgument
// (names a document that has no text; or what the template says is wrong), ErrContextLength (too much text),
// ErrFormat and ErrUnsupported (of the template), and those of Fuse.
func (m *Model) FuseTexts(ctx context.Context, s *Store, documents []Document, question string,
	texts *TextOptions, options *FuseOptions) (*Fusion, error) {
	return m.fuseTexts(ctx, s, documents, texts, options,
		func(store raw.Store, t raw.Texts, how raw.TextOptions, r raw.FuseOptions, out raw.Outcome) raw.Fusion {
			t.Set_question(question)
			return raw.FusionFuse_texts(m.raw, store, t, how, r, out)
		})
}

// FuseMessages does the same with a conversation, as the chat template puts it. Where that has no place for documents
// they stand before the last message of the role user. texts.QuestionTemplate is not used. Errors: ErrNotFound
// (there is no chat template), and those of FuseTexts.
func (m *Model) FuseMessages(ctx context.Context, s *Store, messages []ChatMessage, documents []Document,
	texts *TextOptions, options *FuseOptions) (*Fusion, error) {
	return m.fuseTexts(ctx, s, documents, texts, options,
		func(store raw.Store, t raw.Texts, how raw.TextOptions, r raw.FuseOptions, out raw.Outcome) raw.Fusion {
			for _, message := range messages {
				t.Add_message(message.Role, message.Content, message.Members)
			}
			return raw.FusionFuse_messages(m.raw, store, t, how, r, out)
		})
}

func (m *Model) fuseTexts(ctx context.Context, s *Store, documents []Document, how *TextOptions, options *FuseOptions,
	use func(raw.Store, raw.Texts, raw.TextOptions, raw.FuseOptions, raw.Outcome) raw.Fusion) (*Fusion, error) {
	if m == nil || m.raw == nil {
		return nil, closed("model")
	}
	defer runtime.KeepAlive(m)
	texts := makeTexts(documents)
	defer raw.DeleteTexts(texts)
	t := how.make()
	defer raw.DeleteTextOptions(t)
	var made raw.Fusion
	// The segments are made of the texts.
	err := fusing(ctx, s, nil, options, func(store raw.Store, _ raw.Prompt, o raw.FuseOptions, out raw.Outcome) {
		made = use(store, texts, t, o, out)
	})
	if err != nil {
		return nil, err
	}
	return newFusion(made), nil
}

// TextPrompt gives the prompt of FuseTexts, for FuseBatch, Extend and NewLayerwise. texts may be nil.
func (m *Model) TextPrompt(ctx context.Context, documents []Document, question string, texts *TextOptions) (Prompt, error) {
	if m == nil || m.raw == nil {
		return nil, closed("model")
	}
	defer runtime.KeepAlive(m)
	given := makeTexts(documents)
	defer raw.DeleteTexts(given)
	given.Set_question(question)
	how := texts.make()
	defer raw.DeleteTextOptions(how)
	c, err := begin(ctx, nil)
	if err != nil {
		return nil, err
	}
	made := m.raw.Text_prompt(given, how, c.cancel, c.out)
	defer raw.DeletePrompt(made)
	prompt := takenPrompt(made, c.out)
	if err := c.end(); err != nil {
		return nil, err
	}
	return prompt, nil
}

// PrecomputeTexts stores documents for FuseTexts and FuseMessages, so that they serve each other as context. Without
// a ChunkPrefix it is the head of these prompts. It gives what became of each document, in their order. A call that
// was stopped goes on where it ended when it is made again. texts and options may be nil. Errors: ErrUnsupported
// (the chat template changes every document), and those of FuseTexts and Precompute.
func (m *Model) PrecomputeTexts(ctx context.Context, s *Store, documents []Document, texts *TextOptions,
	options *CorpusOptions) ([]CorpusRecord, error) {
	if m == nil || m.raw == nil {
		return nil, closed("model")
	}
	if s == nil || s.raw == nil {
		return nil, closed("store")
	}
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(s)
	given, r := options.make()
	defer raw.DeleteCorpusOptions(r)
	list := makeTexts(documents)
	defer raw.DeleteTexts(list)
	how := texts.make()
	defer raw.DeleteTextOptions(how)
	c, err := begin(ctx, listen(listener{progress: given.Progress}))
	if err != nil {
		return nil, err
	}
	c.set(r)
	made := m.raw.Precompute_texts(s.raw, list, how, r, c.out)
	defer raw.DeleteCorpusRecords(made)
	if err := c.end(); err != nil {
		return nil, err
	}
	return takenRecords(made)
}
