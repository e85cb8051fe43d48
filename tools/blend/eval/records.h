// Records: what a chunk is prefilled after before it is stored. Each kind has a tenant of its own,
// so that no configuration finds what another has stored.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace blend_cli {

struct RecordKind {
  enum class Is {
    alone,        // after nothing
    head,         // after the prompt's head: all tokens before its first chunk
    predecessor,  // after the head and the chunk before it, with other texts before that if it is
                  // short; the first after the head
    // Contextual, where a chunk is not the first; the first after the head:
    similar,    // the mean over prefills after each of the most similar chunks
    joined,     // after the most similar chunks, one after the other
    preceding,  // the mean over prefills after each of the chunks before it in the prompt
    bos,        // after BOS
    text,       // after a text
    profile     // after what a profile says
  };
  Is is = Is::head;
  std::string name;       // as it was given
  size_t n_passages = 0;  // of the contextual kinds

  bool contextual() const { return n_passages > 0; }
};

// What a profile's kind is called in the tables.
inline constexpr const char* kProfileRecords = "profile";

// From one of the items below, or "profile". Throws CommandError (usage).
RecordKind parse_record_kind(const std::string& name);
// Items of a comma-separated list: alone, head, predecessor, similar:M, joined:M, preceding:M, bos,
// text:... A comma in a text belongs to it unless another item follows. Throws CommandError (usage)
// for anything else.
std::vector<std::string> split_record_kinds(std::string_view list);

}  // namespace blend_cli
