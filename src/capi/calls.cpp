#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "chat/call_reader.h"

using blend::Status;

struct blend_call_reader {
  explicit blend_call_reader(blend::chat::CallReader::How how) : reader(std::move(how)) {}
  blend::chat::CallReader reader;
};

namespace {

Status check_open(const blend_call_reader& reader) {
  if (!reader.reader.has_ended()) return Status::ok();
  return {BLEND_E_INVALID_ARGUMENT,
          "this answer has ended: open another call reader for the next one"};
}

void tell(std::string_view text, const char** shown, size_t* n_shown) {
  *shown = text.data();
  *n_shown = text.size();
}

}  // namespace

extern "C" {

int32_t blend_call_reader_options_init(blend_call_reader_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size);
}

int32_t blend_call_reader_open(blend_call_reader** out, const blend_model* model,
                               const blend_call_reader_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(model);
    blend_call_reader_options o{};
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    if ((o.flags & ~BLEND_CALLS_MUST_CALL) != 0) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "flags 0x%x: unknown BLEND_CALLS_ bits",
                               o.flags);
    }
    BLEND_ASSIGN(const auto loaded, model->loaded());
    BLEND_ASSIGN(auto how,
                 blend::chat::how_to_read_calls(
                     blend::capi::template_of(*loaded, o.template_source), loaded->tokenizer(),
                     o.tools != nullptr ? o.tools : "", (o.flags & BLEND_CALLS_MUST_CALL) != 0));
    *out = new blend_call_reader(std::move(how));
    return Status::ok();
  });
}

void blend_call_reader_close(blend_call_reader* reader) { delete reader; }

int32_t blend_call_reader_add(blend_call_reader* reader, int32_t token, const char* text,
                              size_t n_bytes, const char** shown, size_t* n_shown,
                              blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(reader);
    if (n_bytes > 0) BLEND_REQUIRE(text);
    BLEND_REQUIRE(shown);
    BLEND_REQUIRE(n_shown);
    BLEND_RETURN_IF_ERROR(check_open(*reader));
    const std::string_view piece(n_bytes > 0 ? text : "", n_bytes);
    tell(reader->reader.add(token, piece), shown, n_shown);
    return Status::ok();
  });
}

int32_t blend_call_reader_end(blend_call_reader* reader, int32_t is_cut, const char** shown,
                              size_t* n_shown, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(reader);
    BLEND_REQUIRE(shown);
    BLEND_REQUIRE(n_shown);
    BLEND_RETURN_IF_ERROR(check_open(*reader));
    tell(reader->reader.end(is_cut != 0), shown, n_shown);
    return Status::ok();
  });
}

int32_t blend_call_reader_get_n_calls(const blend_call_reader* reader, size_t* n,
                                      blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(reader);
    BLEND_REQUIRE(n);
    *n = reader->reader.calls().size();
    return Status::ok();
  });
}

int32_t blend_call_reader_get_call(const blend_call_reader* reader, size_t index,
                                   blend_call_info* info, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(reader);
    BLEND_REQUIRE(info);
    const auto& calls = reader->reader.calls();
    if (index >= calls.size()) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "call %zu: the answer has %zu so far",
                               index, calls.size());
    }
    blend_call_info i{};
    i.is_cut = calls[index].is_cut ? 1 : 0;
    i.name = calls[index].name.c_str();
    i.arguments = calls[index].arguments.c_str();
    return blend::capi::write_struct(info, i);
  });
}

}  // extern "C"
