package blend_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"libblend.io/go/blend"
)

const chatTemplate = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}" +
	"{% if add_generation_prompt %}[assistant]{{ more }}{% endif %}"

func TestTools(t *testing.T) {
	messages := []blend.ChatMessage{{Role: "user", Content: "Who?"},
		{Role: "assistant", Members: `{"tool_calls": [{"function": {"name": "find", "arguments": "{}"}}]}`},
		{Role: "tool", Content: "Ada.", Members: `{"tool_call_id": "c1"}`}}
	text, err := model.ChatText(bg, messages, nil, &blend.ChatOptions{TemplateSource: chatTemplate,
		Tools: `[{"function": {"name": "find"}}]`})
	if err != nil || !strings.HasPrefix(text, "[system] # Tools\n") ||
		!strings.Contains(text, "[assistant] <tool_call>\n{\"name\": \"find\", \"arguments\": {}}\n</tool_call>") ||
		!strings.Contains(text, "[user] <tool_response>\nAda.\n</tool_response>") {
		t.Fatalf("%q, %v", text, err)
	}
}

func TestTemplateInfo(t *testing.T) {
	info, err := model.TemplateInfo(chatTemplate)
	if err != nil || !info.ReadsSystem || !info.ReadsGenerationPrompt || info.ReadsTools || info.ReadsDocuments ||
		info.CallOpen != "<tool_call>" || info.CallArguments != "arguments" || info.CallIDLength != 0 {
		t.Fatalf("%+v, %v", info, err)
	}
	if _, err = model.TemplateInfo(""); !errors.Is(err, blend.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err = model.TemplateInfo("{% if %}"); !errors.Is(err, blend.ErrFormat) {
		t.Fatal(err)
	}
}

func TestCallReader(t *testing.T) {
	options := &blend.CallReaderOptions{TemplateSource: "{{ tools }}{{ messages[0].content }}<tool_call>",
		Tools: `[{"function": {"name": "find"}}]`}
	reader, err := blend.OpenCallReader(model, options)
	if err != nil {
		t.Fatal(err)
	}
	var shown string
	for _, piece := range []string{"Grüße. <tool_", `call>{"name": "find", "arguments": {"b": 1.50}}</tool_call>`,
		"<tool_call>x</tool_call>", `<tool_call>{"name": "find", "argum`} {
		text, err := reader.Add(-1, piece)
		if err != nil {
			t.Fatal(err)
		}
		shown += text
	}
	text, err := reader.End(true)
	if shown+text != "Grüße.<tool_call>x</tool_call>" || err != nil {
		t.Fatalf("%q, %v", shown+text, err)
	}
	calls, err := reader.Calls()
	if err != nil || len(calls) != 2 || calls[0].Name != "find" || calls[0].Arguments != `{"b": 1.50}` ||
		calls[0].IsCut || !calls[1].IsCut {
		t.Fatalf("%+v, %v", calls, err)
	}
	if _, err = reader.Add(-1, "more"); !errors.Is(err, blend.ErrInvalidArgument) {
		t.Fatal(err)
	}
	reader.Close()
	if _, err = reader.Calls(); !errors.Is(err, blend.ErrClosed) {
		t.Fatal(err)
	}
	if _, err = blend.OpenCallReader(model, nil); !errors.Is(err, blend.ErrNotFound) {
		t.Fatal(err)
	}
	options.Tools = "{}"
	if _, err = blend.OpenCallReader(model, options); !errors.Is(err, blend.ErrInvalidArgument) {
		t.Fatal(err)
	}
}

func TestMustCall(t *testing.T) {
	const tools = `[{"function": {"name": "find", "parameters": {"properties": {"who": {"const": "Ada"}},
		"required": ["who"]}}}, {"name": "time"}]`
	messages := []blend.ChatMessage{{Role: "user", Content: "Who?"}}
	options := &blend.ChatOptions{TemplateSource: chatTemplate, Tools: tools, MustCall: true}
	text, err := model.ChatText(bg, messages, nil, options)
	if err != nil || !strings.HasSuffix(text, "[assistant]<tool_call>\n") {
		t.Fatalf("%q, %v", text, err)
	}
	how := &blend.GrammarOptions{Language: blend.GrammarCall, Text: tools, Function: "find", TemplateSource: chatTemplate}
	grammar, err := blend.OpenGrammar(bg, model, how)
	if errors.Is(err, blend.ErrUnsupported) && strings.Contains(err.Error(), "BLEND_GRAMMAR") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer grammar.Close()
	prompt, err := model.Chat(bg, messages, nil, options)
	if err != nil {
		t.Fatal(err)
	}
	fusion, err := model.Fuse(bg, store, prompt, &blend.FuseOptions{Policy: blend.PolicyFull, ReserveTokens: 60})
	if err != nil {
		t.Fatal(err)
	}
	defer fusion.Close()
	call, _ := generated(t, fusion, &blend.GenerateOptions{MaxTokens: 60, Grammar: grammar})
	if call != `{"name": "find", "arguments": {"who": "Ada"}}` {
		t.Fatalf("%q", call)
	}
	how.Function = "moon"
	if _, err := blend.OpenGrammar(bg, model, how); !errors.Is(err, blend.ErrInvalidArgument) {
		t.Fatal(err)
	}
}

func TestChat(t *testing.T) {
	messages := []blend.ChatMessage{{Role: "system", Content: "Be brief."}, {Role: "user", Content: question}}
	ids, err := model.Tokenize(documents[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := model.Precompute(bg, store, ids, nil)
	if err != nil {
		t.Fatal(err)
	}
	given := []blend.ChatDocument{{Text: documents[0]}, {ID: stored.ID}}
	options := &blend.ChatOptions{TemplateSource: chatTemplate, Variables: `{"more": "!"}`}
	prompt, err := model.Chat(bg, messages, given, options)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []blend.SegmentKind
	for _, s := range prompt {
		kinds = append(kinds, s.Kind)
	}
	if len(prompt) != 5 || kinds[1] != blend.SegmentChunk || kinds[4] != blend.SegmentQuestion ||
		prompt[3].ID != stored.ID {
		t.Fatalf("segments %v", kinds)
	}
	fusion, err := model.Fuse(bg, store, prompt, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer fusion.Close()
	text, err := model.ChatText(bg, messages, nil, options)
	if err != nil || !strings.HasSuffix(text, question+"\n[assistant]!") {
		t.Fatalf("%q, %v", text, err)
	}
	if _, err := model.Chat(bg, messages, nil, nil); !errors.Is(err, blend.ErrNotFound) {
		t.Fatalf("a model without a template: %v", err)
	}
	gone, cancel := context.WithCancel(bg)
	cancel()
	if _, err := model.Chat(gone, messages, nil, options); !errors.Is(err, context.Canceled) {
		t.Fatalf("a context that is done: %v", err)
	}
	both := []blend.ChatDocument{{Text: "a", ID: stored.ID}}
	if _, err := model.Chat(bg, messages, both, options); !errors.Is(err, blend.ErrInvalidArgument) {
		t.Fatalf("a document with text and id: %v", err)
	}
}
