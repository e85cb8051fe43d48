#include "store/lmdb/transaction.h"

#include "store/lmdb/environment.h"
#include "store/lmdb/error.h"
#include "store/lmdb/keys.h"
#include "store/lmdb/page_format.h"
#include "store/lmdb/repair/check_pages.h"

namespace blend {

bool MapView::header_is_sound(std::span<const std::byte> value) const {
  // A tree page that this transaction has changed lives on the heap, with its short values.
  if (!contains(value)) return value.size() < page_size;
  const auto at = static_cast<uint64_t>(value.data() - base);
  if (!page_format::begins_overflow(at, page_size)) {
    return at % page_size > page_format::kHeaderBytes;  // of a node
  }
  const auto header = page_format::header_at(value.data() - page_format::kHeaderBytes);
  return page_format::is_overflow_header(header, at / page_size, value.size(), page_size);
}

Txn::~Txn() {
  if (txn_ == nullptr || env_->forked()) return;
  mdb_txn_abort(txn_);
  env_->leave();
}

int Txn::commit() {
  const int rc = commit_lmdb(std::exchange(txn_, nullptr));
  env_->leave();
  return rc;
}

Result<MapView> Txn::map_view() const {
  MDB_envinfo info{};
  MapView view;
  view.page_size = env_->page_size();
  // The last page first, then the length: the file only grows, so this order errs on the safe side.
  mdb_env_info(mdb_txn_env(txn_), &info);
  if (!lmdb_file_is_long_enough(env_->data_fd(), info.me_last_pgno, view.page_size)) {
    // Shorter than its pages: truncated, or its last pages are free and were never written.
    const bool reader = mdb_txn_id(txn_) <= info.me_last_txnid;
    bool stale = false;
    BLEND_RETURN_IF_ERROR(check_lmdb_pages(env_->data_fd(), view.page_size,
                                           mdb_txn_id(txn_) - (reader ? 0 : 1), &stale)
                              .with_context("store '" + env_->path() + "'"));
  }
  view.bytes = env_->file_bytes();
  MDB_val key = name_val(kFormatKey);
  MDB_val value{};
  if (const int rc = mdb_get(txn_, env_->info(), &key, &value); rc != 0) {
    return lmdb_error(rc, "store '" + env_->path() + "'");
  }
  // The value lies in a tree page, which names its own number: that gives the start of the map.
  // The map begins at a page of the host's, so at one of the file's, which are no larger
  // (check_lmdb_header()).
  const auto at = reinterpret_cast<uintptr_t>(value.mv_data);
  const std::byte* page = reinterpret_cast<const std::byte*>(at / view.page_size * view.page_size);
  view.base = page - page_format::header_at(page).number * view.page_size;
  return view;
}

}  // namespace blend
