#include "chat/builder.h"

namespace blend::chat {
namespace {

constexpr size_t kAppend = 2;  // fuel for one append, besides that for its bytes

}  // namespace

Status TextBuilder::append(std::string_view bytes, uint32_t origin) {
  BLEND_RETURN_IF_ERROR(meter_.take(kAppend + bytes.size()));
  text_.append(bytes, origin);
  return Status::ok();
}

Status TextBuilder::append(const Text& text, size_t begin, size_t end) {
  if (begin >= end) return meter_.take(kAppend);
  BLEND_RETURN_IF_ERROR(
      meter_.take(kAppend + end - begin + text.runs_between(begin, end) * sizeof(Text::Run)));
  text_.append(text, begin, end);
  return Status::ok();
}

Result<Value> TextBuilder::value() {
  BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue));
  return Value::of(std::move(text_));
}

Result<Value> part_of(const Text& text, size_t begin, size_t end, Meter& meter) {
  TextBuilder out(meter);
  BLEND_RETURN_IF_ERROR(out.append(text, begin, end));
  return out.value();
}

}  // namespace blend::chat
