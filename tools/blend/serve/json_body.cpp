#include "json_body.h"

#include <algorithm>
#include <vector>

#include "request.h"

namespace blend_cli::serve {
namespace {

constexpr size_t kMostDepth = 32;
constexpr size_t kMostValues = 400'000;
constexpr size_t kChargeStep = size_t{64} << 10;

// Builds the value and counts its memory. The library's own parser does not count, and with a
// filter it looks at every value again for each that follows.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(MemoryBudget::Share& share) : share_(share) {}
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr, 0); }
  bool boolean(bool value) override { return add(value, 0); }
  bool number_integer(number_integer_t value) override { return add(value, 0); }
  bool number_unsigned(number_unsigned_t value) override { return add(value, 0); }
  bool number_float(number_float_t value, const string_t&) override { return add(value, 0); }
  bool string(string_t& value) override {
    const size_t bytes = sizeof(string_t) + value.capacity();
    return add(std::move(value), bytes);
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override {
    if (path_.empty()) throw HttpError(400, "the body is not a JSON object");
    return open(Json::array());
  }
  bool key(string_t& name) override {
    charge(kMemberBytes + name.capacity());
    auto& members = path_.back()->get_ref<Json::object_t&>();
    const auto [place, is_new] = members.emplace(std::move(name), nullptr);
    if (!is_new) {
      throw HttpError(400, "the body has the member '" + place->first.substr(0, 64) + "' twice");
    }
    member_ = &place->second;
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception&) override {
    throw HttpError(400, "the body is not JSON: byte " + std::to_string(position) + ", at '" +
                             token.substr(token.size() - std::min<size_t>(token.size(), 40)) + "'");
  }

 private:
  static constexpr size_t kContainerBytes = 64;
  static constexpr size_t kMemberBytes = 112;  // a node of the tree of an object's members
  static constexpr size_t kElementBytes = 48;  // of a list that grows, its copy meanwhile

  void charge(size_t bytes) {
    charged_ += bytes;
    if (charged_ < kChargeStep) return;
    if (!share_.take(charged_)) {
      throw HttpError(503, "the memory for requests (--request-memory) is taken");
    }
    charged_ = 0;
  }
  Json* put(Json value, size_t bytes) {
    if (++n_values_ > kMostValues) {
      throw HttpError(400, "the body has more than " + std::to_string(kMostValues) + " values");
    }
    if (path_.empty()) {
      if (!value.is_object()) throw HttpError(400, "the body is not a JSON object");
      root_ = std::move(value);
      return &root_;
    }
    if (path_.back()->is_array()) {
      charge(kElementBytes + bytes);
      auto& list = path_.back()->get_ref<Json::array_t&>();
      list.push_back(std::move(value));
      return &list.back();
    }
    charge(bytes);
    *member_ = std::move(value);
    return member_;
  }
  template <typename T>
  bool add(T&& value, size_t bytes) {
    put(Json(std::forward<T>(value)), bytes);
    return true;
  }
  bool open(Json value) {
    if (path_.size() == kMostDepth) {
      throw HttpError(400, "the body is nested more than " + std::to_string(kMostDepth) + " deep");
    }
    // A list's elements stay where they are while one of them is open: nothing is added beside it.
    Json* const at = put(std::move(value), kContainerBytes);
    path_.push_back(at);
    return true;
  }
  bool close() {
    path_.pop_back();
    return true;
  }

  MemoryBudget::Share& share_;
  Json root_;
  std::vector<Json*> path_;  // open containers, from the root
  Json* member_ = nullptr;   // of the innermost object, which has a name and no value yet
  size_t n_values_ = 0;
  size_t charged_ = 0;  // not yet taken of share_
};

}  // namespace

Json read_json(std::string body, MemoryBudget::Share& share) {
  // The parser takes a NUL for the end.
  if (const size_t at = body.find('\0'); at != std::string::npos) {
    throw HttpError(400, "the body is not JSON: byte " + std::to_string(at + 1) + " is 0");
  }
  Builder builder(share);
  Json::sax_parse(body, &builder);
  return builder.take();
}

}  // namespace blend_cli::serve
