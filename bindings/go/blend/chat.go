package blend

import (
	"context"
	"runtime"

	"libblend.io/go/internal/raw"
)

// ChatMessage is one turn of a conversation: Role as the template knows it (system, user,
// assistant, tool).
type ChatMessage struct {
	Role    string
	Content string
	// Members is a JSON object: what the message has besides, such as tool_calls or tool_call_id, as
	// OpenAI's API has them.
	Members string
}

// ChatDocument is a source for the answer: a chunk, by its text or by the ID of a stored
// one. Where the template has no place for documents they are put before the last message of the role
// user.
type ChatDocument struct {
	Text  string
	Title string
	ID    ChunkID
}

// ChatOptions are options of Chat. The zero value has the defaults.
type ChatOptions struct {
	//blend:fields chat_options
}

func (options *ChatOptions) make() raw.ChatOptions {
	o := given(options)
	r := raw.NewChatOptions()
	//blend:set chat_options
	return r
}

func (m *Model) rendered(ctx context.Context, messages []ChatMessage, documents []ChatDocument, options *ChatOptions,
	use func(raw.Chat, raw.ChatOptions, *call)) error {
	if m == nil || m.raw == nil {
		return closed("model")
	}
	defer runtime.KeepAlive(m)
	chat := raw.NewChat()
	defer raw.DeleteChat(chat)
	for _, message := range messages {
		chat.Add_message(message.Role, message.Content, message.Members)
	}
	for i, document := range documents {
		switch {
		case document.ID == "":
			chat.Add_document(document.Text, document.Title)
		case document.Text == "":
			chat.Add_stored_document(string(document.ID))
		default:
			return invalid("document %d has an id and a text: it must have one of them", i)
		}
	}
	r := options.make()
	defer raw.DeleteChatOptions(r)
	c, err := begin(ctx, nil)
	if err != nil {
		return err
	}
	use(chat, r, c)
	return c.end()
}

// Chat puts a conversation together by the model's chat template, for Fuse. Control tokens are
// recognized in the template's own text; the texts of messages and documents are plain text, whatever
// they contain. options may be nil. Errors: ErrNotFound (the model has no template),
// ErrInvalidArgument (also if the template reports an error), ErrUnsupported (names the unknown part
// of Jinja), ErrFormat, ErrCancelled.
func (m *Model) Chat(ctx context.Context, messages []ChatMessage, documents []ChatDocument,
	options *ChatOptions) (Prompt, error) {
	var prompt Prompt
	err := m.rendered(ctx, messages, documents, options, func(chat raw.Chat, r raw.ChatOptions, c *call) {
		made := m.raw.Chat(chat, r, c.cancel, c.out)
		defer raw.DeletePrompt(made)
		prompt = takenPrompt(made, c.out)
	})
	if err != nil {
		return nil, err
	}
	return prompt, nil
}

// ChatText is the text that Chat renders, before it is tokenized; U+FFFC for a stored chunk.
func (m *Model) ChatText(ctx context.Context, messages []ChatMessage, documents []ChatDocument,
	options *ChatOptions) (text string, err error) {
	err = m.rendered(ctx, messages, documents, options, func(chat raw.Chat, r raw.ChatOptions, c *call) {
		text = m.raw.Chat_text(chat, r, c.cancel, c.out)
	})
	return text, err
}
