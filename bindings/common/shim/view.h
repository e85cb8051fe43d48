// Memory of the library, shown without a copy.
#ifndef BLEND_SHIM_VIEW_H
#define BLEND_SHIM_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include <memory>
#include <utility>

// Element types of a View.
#define BLEND_SHIM_I32 1
#define BLEND_SHIM_U32 2
#define BLEND_SHIM_F32 3

namespace blend_shim {

// `size` elements at `data`, read-only, valid until release() or destruction even if the object
// they came from is closed. While a view of a fusion's logits, tokens, selected rows or deviations
// is out, calls that would change them give BLEND_SHIM_E_VIEW_HELD. Immutable but for release().
class View {
 public:
  View() = default;
  const void* data() const noexcept { return data_; }  // null once released, and when empty
  size_t size() const noexcept { return size_; }       // elements, 4 bytes each
  int32_t element() const noexcept { return type_; }   // BLEND_SHIM_I32, _U32 or _F32
  void release() noexcept {
    data_ = nullptr;
    size_ = 0;
    owner_.reset();
  }

#ifndef SWIG
  View(std::shared_ptr<const void> owner, const int32_t* data, size_t size) noexcept
      : owner_(std::move(owner)), data_(data), size_(size), type_(BLEND_SHIM_I32) {}
  View(std::shared_ptr<const void> owner, const uint32_t* data, size_t size) noexcept
      : owner_(std::move(owner)), data_(data), size_(size), type_(BLEND_SHIM_U32) {}
  View(std::shared_ptr<const void> owner, const float* data, size_t size) noexcept
      : owner_(std::move(owner)), data_(data), size_(size), type_(BLEND_SHIM_F32) {}
#endif

 private:
#ifndef SWIG
  std::shared_ptr<const void> owner_;
#endif
  const void* data_ = nullptr;
  size_t size_ = 0;
  int32_t type_ = 0;
};

}  // namespace blend_shim

#endif
