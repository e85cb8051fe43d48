#include <ctime>

#include "capi/chat_handle.h"
#include "capi/error.h"
#include "capi/handles.h"
#include "chat/describe.h"
#include "chat/prompt.h"

using blend::Result;
using blend::Status;

namespace {

using blend::capi::read_array;
using blend::capi::template_of;

Status wrong(const char* name, size_t i, const char* what) {
  return blend::make_error(BLEND_E_INVALID_ARGUMENT, "%s %zu: %s", name, i, what);
}

Result<std::vector<blend::chat::Message>> read_messages(const blend_chat_message* messages,
                                                        size_t n) {
  BLEND_ASSIGN(const auto given, read_array(messages, n, "message"));
  std::vector<blend::chat::Message> out(n);
  for (size_t i = 0; i < n; ++i) {
    const blend_chat_message& m = given[i];
    if (m.role == nullptr || m.role[0] == '\0') return wrong("message", i, "it has no role");
    if (m.content == nullptr && m.content_bytes > 0) return wrong("message", i, "content is NULL");
    out[i].role = m.role;
    if (m.content_bytes > 0) out[i].content = {m.content, m.content_bytes};
    if (m.members != nullptr) out[i].members = m.members;
  }
  return out;
}

Result<std::vector<blend::chat::Document>> read_documents(const blend_chat_document* documents,
                                                          size_t n,
                                                          std::vector<blend_chunk_id>& ids) {
  BLEND_ASSIGN(const auto given, read_array(documents, n, "document"));
  std::vector<blend::chat::Document> out(n);
  ids.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const blend_chat_document& d = given[i];
    out[i].stored = d.id != nullptr;
    if (out[i].stored ? d.text != nullptr : d.text == nullptr) {
      return wrong("document", i, "it needs either a text or an id");
    }
    if (out[i].stored) {
      ids[i] = *d.id;
    } else {
      out[i].text = {d.text, d.text_bytes};
    }
    if (d.title != nullptr) out[i].title = d.title;
  }
  return out;
}

}  // namespace

void blend_chat::show_segments() {
  for (const blend::text::Segment& s : prompt.segments) {
    blend_segment segment{};
    segment.struct_size = sizeof segment;
    segment.kind = s.kind;
    if (s.stored != SIZE_MAX) {
      segment.id = &ids[s.stored];
    } else {
      segment.tokens = s.tokens.data();
      segment.n_tokens = s.tokens.size();
    }
    segments.push_back(segment);
  }
}

extern "C" {

int32_t blend_chat_options_init(blend_chat_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size);
}

int32_t blend_chat_render(blend_chat** out, const blend_model* model,
                          const blend_chat_message* messages, size_t n_messages,
                          const blend_chat_document* documents, size_t n_documents,
                          const blend_chat_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(messages);
    if (n_documents > 0) BLEND_REQUIRE(documents);
    if (n_messages == 0) {
      return Status{BLEND_E_INVALID_ARGUMENT, "no messages: a chat begins with one"};
    }
    blend_chat_options o{};
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    constexpr uint32_t kKnown = BLEND_CHAT_NO_GENERATION_PROMPT | BLEND_CHAT_MUST_CALL;
    if ((o.flags & ~kKnown) != 0) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "flags 0x%x: unknown BLEND_CHAT_ bits",
                               o.flags);
    }
    const bool opens = (o.flags & BLEND_CHAT_NO_GENERATION_PROMPT) == 0;
    const bool must_call = (o.flags & BLEND_CHAT_MUST_CALL) != 0;
    if (must_call && !opens) {
      return Status{
          BLEND_E_INVALID_ARGUMENT,
          "the answer must be a call, and the opening of its turn is left out: give one of "
          "the two flags"};
    }
    BLEND_ASSIGN(const auto loaded, model->loaded());
    auto chat = std::make_unique<blend_chat>();
    BLEND_ASSIGN(const auto turns, read_messages(messages, n_messages));
    BLEND_ASSIGN(const auto given, read_documents(documents, n_documents, chat->ids));
    blend::chat::PromptOptions how;
    how.generation_prompt = opens;
    how.must_call = must_call;
    if (o.variables != nullptr) how.variables = o.variables;
    if (o.tools != nullptr) how.tools = o.tools;
    if (o.cancel != nullptr) how.cancel = &o.cancel->token;
    how.now = o.now_s != 0 ? static_cast<int64_t>(o.now_s) : static_cast<int64_t>(time(nullptr));
    BLEND_ASSIGN(chat->prompt, blend::chat::make_prompt(template_of(*loaded, o.template_source),
                                                        loaded->tokenizer(), turns, given, how));
    chat->show_segments();
    *out = chat.release();
    return Status::ok();
  });
}

void blend_chat_close(blend_chat* chat) { delete chat; }

int32_t blend_chat_get_segments(const blend_chat* chat, const blend_segment** segments,
                                size_t* n_segments, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(chat);
    BLEND_REQUIRE(segments);
    BLEND_REQUIRE(n_segments);
    *segments = chat->segments.data();
    *n_segments = chat->segments.size();
    return Status::ok();
  });
}

int32_t blend_chat_get_text(const blend_chat* chat, const char** text, size_t* n_bytes,
                            blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(chat);
    BLEND_REQUIRE(text);
    BLEND_REQUIRE(n_bytes);
    *text = chat->prompt.text.c_str();
    *n_bytes = chat->prompt.text.size();
    return Status::ok();
  });
}

int32_t blend_model_get_template_info(const blend_model* model, const char* template_source,
                                      blend_template_info* info, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(info);
    BLEND_ASSIGN(const auto loaded, model->loaded());
    BLEND_ASSIGN(const blend::chat::Description d,
                 blend::chat::describe(template_of(*loaded, template_source), loaded->tokenizer()));
    blend_template_info i{};
    i.reads_system = d.reads_system ? 1 : 0;
    i.reads_tools = d.reads_tools ? 1 : 0;
    i.reads_tool_calls = d.reads_tool_calls ? 1 : 0;
    i.reads_documents = d.reads_documents ? 1 : 0;
    i.reads_generation_prompt = d.reads_generation_prompt ? 1 : 0;
    i.reads_enable_thinking = d.reads_thinking ? 1 : 0;
    i.call_id_length = d.calls.id_length;
    i.call_open = d.calls.open;
    i.call_close = d.calls.close;
    i.call_begin = d.calls.begin;
    i.call_arguments = d.calls.arguments;
    return blend::capi::write_struct(info, i);
  });
}

}  // extern "C"
