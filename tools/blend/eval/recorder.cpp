#include "eval/recorder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "choices.h"
#include "corpus.h"
#include "interrupt.h"
#include "table.h"

namespace blend_cli {
namespace {

using Is = RecordKind::Is;

blendpp::Tokens joined(std::initializer_list<const blendpp::Tokens*> parts) {
  blendpp::Tokens out;
  for (const blendpp::Tokens* part : parts) out.insert(out.end(), part->begin(), part->end());
  return out;
}

// Tells lists of chunks apart. FNV-1a: the same on every platform.
std::string mark_of(const std::vector<blendpp::Tokens>& chunks) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3u; };
  for (const blendpp::Tokens& chunk : chunks) {
    add(chunk.size());
    for (const int32_t token : chunk) add(static_cast<uint64_t>(token));
  }
  return format("%016llx", static_cast<unsigned long long>(hash));
}

}  // namespace

double CodecSize::bytes_per_token() const {
  return tokens == 0 ? 0 : static_cast<double>(stored_bytes) / static_cast<double>(tokens);
}

double CodecSize::bits_per_element() const {
  return elements == 0 ? 0
                       : 8.0 * static_cast<double>(stored_bytes) / static_cast<double>(elements);
}

void Recorder::add(const std::string& records, uint32_t codec) {
  kind(records);
  wanted_.emplace(records, codec);
  codecs_.insert(codec);
}

const RecordKind& Recorder::kind(const std::string& records) {
  const auto it = kinds_.find(records);
  if (it != kinds_.end()) return it->second;
  RecordKind kind = parse_record_kind(records);
  if (kind.is == Is::bos || kind.is == Is::text) {
    fixed_[records] = chunk_prefix_tokens(model_, records);
  } else if (kind.is == Is::profile) {
    fixed_[records] = profile_->chunk_prefix();
  }
  return kinds_[records] = std::move(kind);
}

const SimilarChunks& Recorder::similar() {
  if (!similar_) {
    std::vector<blendpp::Tokens> chunks;
    for (const std::string& text : corpus_) chunks.push_back(model_.tokenize(text));
    corpus_mark_ = mark_of(chunks);
    similar_.emplace(chunks);
  }
  return *similar_;
}

const std::string& Recorder::corpus_mark() {
  similar();
  return corpus_mark_;
}

std::string Recorder::tenant(const std::string& records, uint32_t codec, const Question& question) {
  std::string name = "eval " + records;
  // The passages are not part of an id: another data set, or another prompt, has others.
  const RecordKind& wanted = kind(records);
  if (wanted.is == Is::preceding || wanted.is == Is::predecessor) {
    name += " of " + mark_of(question.chunks);
  } else if (wanted.contextual()) {
    name += " of " + corpus_mark();
  }
  if (codecs_.size() > 1) name += ", " + name_of(codec_choices(), codec);
  return name;
}

const blendpp::Tokens& Recorder::chunk_prefix(const std::string& records,
                                              const Question& question) {
  switch (kind(records).is) {
    case Is::head:
    case Is::predecessor:
    case Is::similar:
    case Is::joined:
    case Is::preceding:
      return question.head;
    case Is::alone:
    case Is::bos:
    case Is::text:
    case Is::profile:
      break;
  }
  return fixed_[records];
}

void Recorder::find(const std::string& records, uint32_t codec, const Question& question,
                    blendpp::FuseOptions& fuse) {
  static constexpr int32_t kNothing = 0;  // NULL is the prompt head
  const blendpp::Tokens& prefix = chunk_prefix(records, question);
  fuse.chunk_prefix = prefix.empty() ? &kNothing : prefix.data();
  fuse.n_chunk_prefix = prefix.size();
  tenant_ = tenant(records, codec, question);
  fuse.tenant = tenant_.c_str();
}

void Recorder::put(const blendpp::Tokens& tokens, const blendpp::Tokens& prefix,
                   const std::string& tenant, uint32_t codec,
                   const std::vector<const blendpp::Tokens*>& contexts,
                   const blendpp::Tokens& predecessor) {
  blendpp::PrecomputeOptions options;
  options.codec = codec;
  options.tenant = tenant.c_str();
  options.chunk_prefix = prefix.data();
  options.n_chunk_prefix = prefix.size();
  std::vector<blend_context_passage> passages;
  for (const blendpp::Tokens* passage : contexts) {
    passages.push_back({passage->data(), passage->size()});
  }
  options.contexts = passages.data();
  options.n_contexts = passages.size();
  options.predecessor = predecessor.data();
  options.n_predecessor = predecessor.size();
  options.cancel = interrupt_token();
  const blendpp::CodecStat before = codec_stat(codec);
  const blendpp::Precomputed done = model_.precompute(store_, tokens, options);
  if (done.existed) return;
  stored_.push_back(done.id);
  if (codec != BLEND_CODEC_DEFAULT) add_size(codec, before, tokens.size());
}

blendpp::CodecStat Recorder::codec_stat(uint32_t codec) const {
  return codec == BLEND_CODEC_DEFAULT ? blendpp::CodecStat() : store_.codec_stat(codec);
}

void Recorder::add_size(uint32_t codec, const blendpp::CodecStat& before, size_t n_tokens) {
  const blendpp::CodecStat after = codec_stat(codec);
  CodecSize& size = sizes_[codec];
  size.tokens += n_tokens;
  size.elements += (after.bytes - before.bytes) / element_bytes();
  size.stored_bytes += after.stored_bytes - before.stored_bytes;
}

uint64_t Recorder::element_bytes() {
  if (element_bytes_ == 0) {
    const blendpp::ChunkId own = stored_.back();
    store_.list(false, [&](const blend_chunk_info& info, const char*) {
      if (std::memcmp(info.id.bytes, own.bytes, sizeof own.bytes) == 0) {
        element_bytes_ = info.kv_dtype == BLEND_DTYPE_F32 ? 4 : 2;
      }
      return true;
    });
  }
  return element_bytes_;
}

std::vector<const blendpp::Tokens*> Recorder::passages(const RecordKind& kind,
                                                       const Question& question, size_t i) {
  if (kind.is == Is::preceding) {  // the nearest first
    std::vector<const blendpp::Tokens*> before;
    for (size_t j = i; j > 0 && before.size() < kind.n_passages; --j) {
      before.push_back(&question.chunks[j - 1]);
    }
    return before;
  }
  const auto alike = similar().most_similar(question.chunks[i], kind.n_passages);
  if (alike.empty()) return {};
  joined_.clear();  // the most similar last, next to the chunk
  for (auto it = alike.rbegin(); it != alike.rend(); ++it) {
    joined_.insert(joined_.end(), (*it)->begin(), (*it)->end());
  }
  return {&joined_};
}

// In use these are other texts of a prompt in which the two were seen together. Here they must not
// be of this prompt.
std::vector<const blendpp::Tokens*> Recorder::others_before(const Question& question, size_t i) {
  std::vector<const blendpp::Tokens*> out;
  const size_t most = BLEND_MOST_CONTEXTS;
  for (const blendpp::Tokens* passage : similar().most_similar(question.chunks[i], most)) {
    const auto same = std::find(question.chunks.begin(), question.chunks.end(), *passage);
    if (same == question.chunks.end()) out.push_back(passage);
  }
  return out;
}

void Recorder::store_corpus(const blendpp::Tokens& prefix, uint32_t n_contexts,
                            const std::string& tenant, uint32_t codec) {
  if (!corpora_.insert({tenant, prefix}).second) return;
  const uint64_t before = store_.stat().bytes;
  std::vector<blendpp::CorpusChunk> chunks;
  for (const blendpp::Tokens& chunk : similar().chunks()) chunks.push_back({chunk, {}, {}});
  // One record by itself tells how many values a token has.
  if (codec != BLEND_CODEC_DEFAULT) put(chunks[0].tokens, prefix, tenant, codec);
  const blendpp::CodecStat codec_before = codec_stat(codec);
  blendpp::CorpusOptions options;
  options.codec = codec;
  options.chunk_prefix = prefix.data();
  options.n_chunk_prefix = prefix.size();
  options.tenant = tenant.c_str();
  options.n_contexts = n_contexts;
  options.cancel = interrupt_token();
  const bool made = model_.precompute_corpus(store_, chunks, options);
  corpus_bytes_ += store_.stat().bytes - before;
  CodecSize& size = sizes_[codec];
  if (!made || codec == BLEND_CODEC_DEFAULT || size.elements == 0) return;
  const CodecSize one = size;
  add_size(codec, codec_before, 0);  // chunks have up to three records, and drafts
  size.tokens = size.elements * one.tokens / one.elements;
}

void Recorder::store(const Question& question, const std::string& records, uint32_t codec) {
  const std::string owner = tenant(records, codec, question);
  blendpp::Tokens before;
  for (const blendpp::Tokens& prefix : question.prefixes) {
    put(prefix, before, owner, codec);
    before.insert(before.end(), prefix.begin(), prefix.end());
  }
  const RecordKind& wanted = kind(records);
  for (size_t i = 0; i < question.chunks.size(); ++i) {
    const blendpp::Tokens& chunk = question.chunks[i];
    const blendpp::Tokens& prefix = chunk_prefix(records, question);
    if (wanted.is == Is::predecessor && i > 0) {
      const blendpp::Tokens last = joined({&question.chunks[i - 1], &question.before[i]});
      // The second chunk's is exact: nothing else precedes it.
      std::vector<const blendpp::Tokens*> others;
      if (i > 1) others = others_before(question, i);
      put(chunk, prefix, owner, codec, others, last);
      continue;
    }
    if (wanted.is == Is::similar) store_corpus(prefix, wanted.n_passages, owner, codec);
    put(chunk, prefix, owner, codec);
    if (!wanted.contextual() || wanted.is == Is::similar) continue;
    const auto after = passages(wanted, question, i);
    for (const blendpp::Tokens* passage : after) put(*passage, prefix, owner, codec);
    if (!after.empty()) put(chunk, prefix, owner, codec, after);
  }
}

void Recorder::store(const Question& question) {
  for (const auto& [records, codec] : wanted_) store(question, records, codec);
}

void Recorder::trim(uint64_t bytes) {
  if (store_.stat().bytes <= bytes + corpus_bytes_) return;
  for (const blendpp::ChunkId& id : std::exchange(stored_, {})) store_.remove(id);
}

}  // namespace blend_cli
