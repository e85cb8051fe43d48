// Texts in, a fusion out: over chat.h, blend_fuse and blend_precompute_corpus, as a host would.
#include "blend/text.h"

#include <memory>
#include <optional>

#include "capi/chat_handle.h"
#include "capi/error.h"
#include "capi/handles.h"
#include "text/plain.h"
#include "text/white_space.h"

using blend::Result;
using blend::Status;

namespace {

struct CloseChat {
  void operator()(blend_chat* chat) const noexcept { blend_chat_close(chat); }
};
using Chat = std::unique_ptr<blend_chat, CloseChat>;

struct FreeError {
  void operator()(blend_error* error) const noexcept { blend_error_free(error); }
};

// What an entry point that is called here has given.
template <typename Call>
Result<int32_t> outcome_of(const Call& call) {
  blend_error* raw = nullptr;
  const int32_t code = call(&raw);
  const std::unique_ptr<blend_error, FreeError> error(raw);
  if (code >= 0) return code;
  return Status{code, blend_error_message(raw), blend_error_detail(raw)};
}

// Documents and how they are put.
struct Texts {
  const blend_model* handle = nullptr;
  std::shared_ptr<const blend::Model> model;
  blend_text_options options{};
  std::vector<std::string> documents;
  std::vector<const char*> titles;  // [documents]; null: none
  bool plain = false;               // no chat template

  bool has(uint32_t flag) const { return (options.flags & flag) != 0; }
};

bool is_given(const char* text) { return text != nullptr && text[0] != '\0'; }

// So that a text is the same chunk however it was read.
Result<std::string> read_document(const char* text, size_t i, bool verbatim) {
  if (text == nullptr) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "document %zu is NULL", i);
  }
  const std::string_view body = blend::text::stripped(text);
  if (body.empty()) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                             "document %zu has no text but white space: leave it out", i);
  }
  return verbatim ? std::string(text) : std::string(body) + '\n';
}

Result<Texts> read_texts(const blend_model* model, const char* const* documents, size_t n,
                         const blend_text_options* options) {
  Texts out;
  out.handle = model;
  BLEND_ASSIGN(out.model, model->fusible());
  BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, out.options));
  const blend_text_options& o = out.options;
  constexpr uint32_t kKnown =
      BLEND_TEXT_PLAIN | BLEND_TEXT_VERBATIM | BLEND_TEXT_SPECIAL | BLEND_TEXT_MUST_CALL;
  if ((o.flags & ~kKnown) != 0) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "flags 0x%x: unknown BLEND_TEXT_ bits",
                             o.flags);
  }
  if (out.has(BLEND_TEXT_PLAIN) && is_given(o.template_source)) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "template_source is given, and plain text asked for: give one of them"};
  }
  out.plain = out.has(BLEND_TEXT_PLAIN) ||
              (!is_given(o.template_source) && out.model->chat_template().empty());
  if (out.plain && is_given(o.tools)) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "tools are given, and no chat template that could tell the model of them: give "
                  "one (template_source)"};
  }
  if (out.plain && out.has(BLEND_TEXT_MUST_CALL)) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "the answer must be a call, and no chat template says how one begins: give one "
                  "(template_source)"};
  }
  BLEND_RETURN_IF_ERROR(blend::capi::check_parts(n, "document"));
  if (n > 0) BLEND_REQUIRE(documents);
  for (size_t i = 0; i < n; ++i) {
    BLEND_ASSIGN(std::string document,
                 read_document(documents[i], i, out.has(BLEND_TEXT_VERBATIM)));
    out.documents.push_back(std::move(document));
    out.titles.push_back(o.titles != nullptr ? o.titles[i] : nullptr);
  }
  return out;
}

blend_chat_message message(const char* role, std::string_view content) {
  blend_chat_message out{};
  out.struct_size = sizeof out;
  out.role = role;
  out.content = content.data();
  out.content_bytes = content.size();
  return out;
}

Result<Chat> render(const Texts& texts, const std::vector<blend_chat_message>& messages,
                    const blend_cancel* cancel) {
  const blend_text_options& o = texts.options;
  std::vector<blend_chat_message> turns;
  if (is_given(o.system)) turns.push_back(message("system", o.system));
  for (const blend_chat_message& m : messages) {
    turns.push_back(m);
    turns.back().struct_size = sizeof m;  // not the host's, which may be newer
  }
  std::vector<blend_chat_document> documents(texts.documents.size());
  for (size_t i = 0; i < documents.size(); ++i) {
    documents[i].struct_size = sizeof documents[i];
    documents[i].title = texts.titles[i];
    documents[i].text = texts.documents[i].data();
    documents[i].text_bytes = texts.documents[i].size();
  }
  blend_chat_options how{};
  how.struct_size = sizeof how;
  if (texts.has(BLEND_TEXT_MUST_CALL)) how.flags |= BLEND_CHAT_MUST_CALL;
  how.template_source = o.template_source;
  how.variables = o.variables;
  how.now_s = o.now_s;
  how.cancel = cancel;
  how.tools = o.tools;
  blend_chat* raw = nullptr;
  BLEND_RETURN_IF_ERROR(outcome_of([&](blend_error** err) {
                          return blend_chat_render(&raw, texts.handle, turns.data(), turns.size(),
                                                   documents.data(), documents.size(), &how, err);
                        }).status());
  return Chat(raw);
}

Result<Chat> render_plain(const Texts& texts, std::string_view question,
                          const blend_cancel* cancel) {
  const blend_text_options& o = texts.options;
  blend::text::PlainOptions how;
  if (o.system != nullptr) how.system = o.system;
  if (o.question_template != nullptr) how.question_template = o.question_template;
  how.special = texts.has(BLEND_TEXT_SPECIAL);
  if (cancel != nullptr) how.cancel = &cancel->token;
  Chat chat(new blend_chat);
  BLEND_ASSIGN(chat->prompt, blend::text::make_plain_prompt(texts.model->tokenizer(),
                                                            texts.documents, question, how));
  chat->show_segments();
  return chat;
}

Result<Chat> render_question(const Texts& texts, const char* question, const blend_cancel* cancel) {
  if (texts.plain) return render_plain(texts, question, cancel);
  std::string asked = question;
  if (is_given(texts.options.question_template)) {
    BLEND_ASSIGN(asked, blend::text::put_question(texts.options.question_template, question));
  }
  return render(texts, {message("user", asked)}, cancel);
}

// What prompts of this form begin with, whatever their documents and question are: the segments of
// one, whose CHUNK stands for all documents. `messages`: of a conversation; those that the system
// says at its beginning count.
Result<Chat> render_opening(const Texts& texts, const std::vector<blend_chat_message>& messages,
                            const blend_cancel* cancel) {
  const Texts any{.handle = texts.handle,
                  .model = texts.model,
                  .options = texts.options,
                  .documents = {"x"},
                  .titles = {nullptr},
                  .plain = texts.plain};
  if (any.plain) return render_plain(any, "x", cancel);
  std::vector<blend_chat_message> turns;
  for (const blend_chat_message& m : messages) {
    const std::string_view role = m.role != nullptr ? m.role : "";
    if (role != "system" && role != "developer") break;
    turns.push_back(m);
  }
  turns.push_back(message("user", "x"));
  return render(any, turns, cancel);
}

// The tokens before the first document; nothing where no document is a chunk.
std::optional<std::vector<int32_t>> head_of(const blend_chat& chat) {
  std::vector<int32_t> head;
  for (const blend_segment& s : chat.segments) {
    if (s.kind == BLEND_SEGMENT_CHUNK) return head;
    head.insert(head.end(), s.tokens, s.tokens + s.n_tokens);
  }
  return std::nullopt;
}

Status check_length(const blend_chat& chat, const Texts& texts) {
  size_t n = 0;
  size_t n_in_documents = 0;
  for (const blend_segment& s : chat.segments) {
    n += s.n_tokens;
    if (s.kind == BLEND_SEGMENT_CHUNK) n_in_documents += s.n_tokens;
  }
  const uint32_t most = texts.model->context_length();
  if (n <= most) return Status::ok();
  return blend::make_error(BLEND_E_CONTEXT_LENGTH,
                           "the prompt has %zu tokens, %zu of them in %zu documents, and the "
                           "model's context is %u: give fewer or shorter documents",
                           n, n_in_documents, texts.documents.size(), most);
}

Result<blend_fuse_options> read_fuse(const blend_text_options& o, const blend_store* store) {
  blend_fuse_options fuse{};
  blend_fuse_options_init(&fuse, sizeof fuse);  // cannot fail
  BLEND_RETURN_IF_ERROR(blend::capi::read_struct(o.fuse, fuse));
  fuse.struct_size = sizeof fuse;
  if (o.tenant != nullptr) fuse.tenant = o.tenant;
  if (o.cancel != nullptr) fuse.cancel = o.cancel;
  const bool stores =
      fuse.on_miss == BLEND_MISS_PRECOMPUTE || fuse.on_miss == BLEND_MISS_COMPUTE_STORE;
  if (store == nullptr && stores) fuse.on_miss = BLEND_MISS_COMPUTE;
  return fuse;
}

Status fuse_chat(blend_fusion** out, const blend_store* store, const Texts& texts,
                 const blend_chat& chat, const std::vector<blend_chat_message>& messages,
                 blend_fuse_options fuse) {
  static constexpr int32_t kNothing = 0;  // NULL is the prompt's own head
  BLEND_RETURN_IF_ERROR(check_length(chat, texts));
  std::optional<std::vector<int32_t>> head;
  if (fuse.chunk_prefix == nullptr && !chat.prompt.stable_head) {
    // A template may refuse what stands for any prompt; then it is this prompt's head.
    const Result<Chat> opening = render_opening(texts, messages, fuse.cancel);
    if (opening.is_ok()) head = head_of(*opening.value());
  }
  if (head.has_value()) {
    fuse.chunk_prefix = head->empty() ? &kNothing : head->data();
    fuse.n_chunk_prefix = head->size();
  }
  return outcome_of([&](blend_error** err) {
           return blend_fuse(out, texts.handle, store, chat.segments.data(), chat.segments.size(),
                             &fuse, err);
         })
      .status();
}

// Stores the prefixes that prompts begin with, each after what precedes it. False: all were there.
Result<bool> store_prefixes(const Texts& texts, const blend_store* store, const blend_chat& opening,
                            const blend_corpus_options& corpus) {
  bool stored = false;
  std::vector<int32_t> before;
  for (const blend_segment& s : opening.segments) {
    if (s.kind != BLEND_SEGMENT_PREFIX) break;
    blend_precompute_options o{};
    o.struct_size = sizeof o;
    o.codec = corpus.codec;
    o.n_threads = corpus.n_threads;
    o.chunk_prefix = before.data();
    o.n_chunk_prefix = before.size();
    o.tenant = corpus.tenant;
    o.cancel = corpus.cancel;
    o.label = "(prefix)";
    BLEND_ASSIGN(const int32_t code, outcome_of([&](blend_error** err) {
                   return blend_precompute(texts.handle, store, s.tokens, s.n_tokens, &o, nullptr,
                                           err);
                 }));
    stored = stored || code != BLEND_EXISTS;
    before.insert(before.end(), s.tokens, s.tokens + s.n_tokens);
  }
  return stored;
}

Result<int32_t> store_documents(const Texts& texts, const blend_store* store,
                                const blend_corpus_options& corpus) {
  const blend::Watch watch = blend::capi::make_watch(corpus.cancel, nullptr, nullptr);
  std::vector<std::vector<int32_t>> tokens;
  std::vector<blend_corpus_chunk> chunks(texts.documents.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    BLEND_RETURN_IF_ERROR(watch.check());
    BLEND_ASSIGN(std::vector<int32_t> encoded,
                 texts.model->tokenizer().encode(texts.documents[i], 0));
    tokens.push_back(std::move(encoded));
    chunks[i].struct_size = sizeof chunks[i];
    chunks[i].tokens = tokens.back().data();
    chunks[i].n_tokens = tokens.back().size();
    if (is_given(texts.titles[i])) chunks[i].label = texts.titles[i];
  }
  return outcome_of([&](blend_error** err) {
    return blend_precompute_corpus(texts.handle, store, chunks.data(), chunks.size(), &corpus, err);
  });
}

}  // namespace

extern "C" {

int32_t blend_text_options_init(blend_text_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size);
}

int32_t blend_chat_render_texts(blend_chat** out, const blend_model* model,
                                const char* const* documents, size_t n_documents,
                                const char* question, const blend_text_options* options,
                                blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(question);
    BLEND_ASSIGN(const Texts texts, read_texts(model, documents, n_documents, options));
    BLEND_ASSIGN(Chat chat, render_question(texts, question, texts.options.cancel));
    *out = chat.release();
    return Status::ok();
  });
}

int32_t blend_fuse_texts(blend_fusion** out, const blend_model* model, const blend_store* store,
                         const char* const* documents, size_t n_documents, const char* question,
                         const blend_text_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(question);
    BLEND_ASSIGN(const Texts texts, read_texts(model, documents, n_documents, options));
    BLEND_ASSIGN(const blend_fuse_options fuse, read_fuse(texts.options, store));
    BLEND_ASSIGN(const Chat chat, render_question(texts, question, fuse.cancel));
    return fuse_chat(out, store, texts, *chat, {}, fuse);
  });
}

int32_t blend_fuse_messages(blend_fusion** out, const blend_model* model, const blend_store* store,
                            const blend_chat_message* messages, size_t n_messages,
                            const char* const* documents, size_t n_documents,
                            const blend_text_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(model);
    if (n_messages == 0) {
      return Status{BLEND_E_INVALID_ARGUMENT, "no messages: a conversation begins with one"};
    }
    BLEND_REQUIRE(messages);
    BLEND_ASSIGN(const Texts texts, read_texts(model, documents, n_documents, options));
    if (texts.plain) {
      return Status{BLEND_E_NOT_FOUND,
                    "there is no chat template to put a conversation by: give one "
                    "(template_source), or a question alone"};
    }
    BLEND_ASSIGN(const auto turns, blend::capi::read_array(messages, n_messages, "message"));
    BLEND_ASSIGN(const blend_fuse_options fuse, read_fuse(texts.options, store));
    BLEND_ASSIGN(const Chat chat, render(texts, turns, fuse.cancel));
    return fuse_chat(out, store, texts, *chat, turns, fuse);
  });
}

int32_t blend_precompute_texts(const blend_model* model, const blend_store* store,
                               const char* const* documents, size_t n_documents,
                               const blend_text_options* options,
                               const blend_corpus_options* corpus, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Result<int32_t> {
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(store);
    BLEND_ASSIGN(const Texts texts, read_texts(model, documents, n_documents, options));
    blend_corpus_options o{};
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(corpus, o));
    o.struct_size = sizeof o;
    if (texts.options.tenant != nullptr) o.tenant = texts.options.tenant;
    if (texts.options.cancel != nullptr) o.cancel = texts.options.cancel;
    BLEND_ASSIGN(const Chat opening, render_opening(texts, {}, o.cancel));
    const auto head = head_of(*opening);
    if (!head.has_value()) {
      return Status{BLEND_E_UNSUPPORTED,
                    "the chat template changes every document, so that none can be a chunk"};
    }
    if (o.chunk_prefix == nullptr && o.n_chunk_prefix == 0) {
      o.chunk_prefix = head->data();
      o.n_chunk_prefix = head->size();
    }
    BLEND_ASSIGN(const bool stored, store_prefixes(texts, store, *opening, o));
    BLEND_ASSIGN(const int32_t code, store_documents(texts, store, o));
    return stored ? int32_t{BLEND_OK} : code;
  });
}

}  // extern "C"
