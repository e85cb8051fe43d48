// Questions over passages as `blend eval` reads them, for benchmarks that answer them through the
// library's public face with its defaults.
#pragma once

#include <blend/blend.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace blend::bench {

struct Question {
  std::vector<std::string> chunks;
  std::string text;
};

inline std::vector<Question> read_questions(const std::vector<std::string>& paths) {
  std::vector<Question> out;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("--data: cannot read " + path);
    std::string line;
    while (std::getline(file, line)) {
      if (line.empty()) continue;
      const nlohmann::json record = nlohmann::json::parse(line);
      out.push_back({record.at("chunks"), record.at("question")});
    }
  }
  if (out.empty()) throw std::runtime_error("--data: no question in these files");
  return out;
}

// How a question is put to a model: by its chat template, or as plain text after BOS.
struct Asking {
  bool chat = false;
  std::string system = "You are a helpful assistant. Answer the question from the passages.";

  blendpp::Prompt prompt(const blendpp::Model& model, const Question& q) const {
    if (chat) {
      const std::vector<blendpp::ChatMessage> messages = {
          {"system", system}, {"user", "Question: " + q.text + "\nAnswer in a few words."}};
      std::vector<blendpp::ChatDocument> documents;
      for (const std::string& text : q.chunks) documents.emplace_back(text);
      return blendpp::render_chat(model, messages, documents).prompt;
    }
    blendpp::Prompt prompt;
    prompt.prefix(
        model.tokenize(system + "\n", model.info().add_bos != 0 ? BLEND_TOKENIZE_BOS : 0));
    for (const std::string& text : q.chunks) prompt.chunk(model.tokenize(text));
    prompt.question(model.tokenize("Question: " + q.text + "\nAnswer:"));
    return prompt;
  }

  // All chunks of the questions as one corpus, after the head that their prompts have.
  void precompute(blendpp::Model& model, blendpp::Store& store,
                  const std::vector<Question>& questions) const {
    std::set<std::string> seen;
    std::vector<blendpp::CorpusChunk> chunks;
    for (const Question& q : questions) {
      for (const std::string& text : q.chunks) {
        if (seen.insert(text).second) chunks.push_back({model.tokenize(text), {}, {}});
      }
    }
    const blendpp::Tokens head = prompt(model, questions.front()).head();
    blendpp::CorpusOptions options;
    options.chunk_prefix = head.data();
    options.n_chunk_prefix = head.size();
    model.precompute_corpus(store, chunks, options);
    store.flush();
  }
};

}  // namespace blend::bench
