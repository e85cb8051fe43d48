// What is made of texts: prompts, fusions, stored chunks.
#include "text.h"

#include "detail.h"

namespace blend_shim {

TextOptions::TextOptions() noexcept { show(*this, blendpp::TextOptions()); }

void Texts::add_document(const std::string& document, const std::string& title) noexcept {
  keep([&] {
    documents_.push_back(document);
    titles_.push_back(title);
  });
}
void Texts::set_question(const std::string& question) noexcept {
  keep([&] { question_ = question; });
}
void Texts::add_message(const std::string& role, const std::string& content,
                        const std::string& members) noexcept {
  keep([&] { messages_.push_back({role, content, members}); });
}

namespace {

// Text options as a C struct, which points into both, and the titles.
struct TextArguments {
  TextArguments(const Texts& texts, const TextOptions& options) {
    require_complete(texts);
    give(c, options);
    bool any = false;
    for (size_t i = 0; i < texts.titles_.size(); ++i) {
      const std::string& title = texts.titles_[i];
      titles.push_back(
          blendpp::detail::c_string(title, "the title of document " + std::to_string(i)));
      any = any || !title.empty();
    }
    if (any) c.titles = titles.data();
  }
  blendpp::TextOptions c;
  std::vector<const char*> titles;
};

}  // namespace

Prompt Model::text_prompt(const Texts& texts, const TextOptions& options, const Cancel& cancel,
                          Outcome& out) const noexcept {
  return guarded(out, [&] {
    TextArguments arguments(texts, options);
    arguments.c.cancel = raw(cancel.token());
    Prompt prompt;
    prompt.prompt_ = std::make_shared<blendpp::Prompt>(
        blendpp::render_texts(*slot_->get(), texts.documents_, texts.question_, arguments.c)
            .prompt);
    return prompt;
  });
}

CorpusRecords Model::precompute_texts(const Store& store, const Texts& texts,
                                      const TextOptions& options, const CorpusOptions& corpus,
                                      Outcome& out) const noexcept {
  return guarded(out, [&] {
    const TextArguments arguments(texts, options);
    CorpusRecords made;
    blendpp::CorpusOptions c = corpus_arguments(corpus, made);
    if (corpus.chunk_prefix_.empty()) c.chunk_prefix = nullptr;  // the head of the prompts
    const auto opened = store.get();
    if (!opened) invalid("this needs a store: Store::none() stands for no store");
    slot_->get()->precompute_texts(*opened, texts.documents_, arguments.c, c);
    return made;
  });
}

Fusion* Fusion::fuse_texts(const Model& model, const Store& store, const Texts& texts,
                           const TextOptions& how, const FuseOptions& options,
                           Outcome& out) noexcept {
  return guarded(out, [&] {
    const TextArguments arguments(texts, how);
    const FuseArguments fuse(options);
    const auto opened = model.slot().get();
    const auto from = store.get();
    return new Fusion(make_slot("fusion", std::make_shared<FusionState>(blendpp::Fusion(
                                              *opened, from.get(), texts.documents_,
                                              texts.question_, arguments.c, fuse.c))));
  });
}

Fusion* Fusion::fuse_messages(const Model& model, const Store& store, const Texts& texts,
                              const TextOptions& how, const FuseOptions& options,
                              Outcome& out) noexcept {
  return guarded(out, [&] {
    const TextArguments arguments(texts, how);
    const FuseArguments fuse(options);
    const auto opened = model.slot().get();
    const auto from = store.get();
    const std::vector<blendpp::ChatMessage> messages = given_messages(texts.messages_);
    return new Fusion(make_slot(
        "fusion", std::make_shared<FusionState>(blendpp::Fusion(
                      *opened, from.get(), messages, texts.documents_, arguments.c, fuse.c))));
  });
}

}  // namespace blend_shim
