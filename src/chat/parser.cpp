#include "chat/parser.h"

#include <algorithm>
#include <charconv>

namespace blend::chat {
namespace {

using Kind = Expression::Kind;

// Of brackets, blocks and chains of operators: recursion over the tree follows it.
constexpr int kMaxNesting = 64;
constexpr int kMaxChain = 256;

class Parser {
 public:
  explicit Parser(std::vector<Word> words) : words_(std::move(words)) {}

  Result<Syntax> run() {
    Syntax out;
    std::string end;
    BLEND_RETURN_IF_ERROR(body(out.body, {}, end));
    out.names_documents = names_documents_;
    return out;
  }

 private:
  // ---- words

  const Word& word() const { return words_[at_]; }
  const Word& next_word() const { return words_[std::min(at_ + 1, words_.size() - 1)]; }
  void step() {
    if (at_ + 1 < words_.size()) ++at_;
  }
  bool is_op(std::string_view text) const {
    return word().kind == Word::Kind::op && word().text == text;
  }
  bool is_name(std::string_view text) const {
    return word().kind == Word::Kind::name && word().text == text;
  }
  bool take_op(std::string_view text) {
    if (!is_op(text)) return false;
    step();
    return true;
  }
  bool take_name(std::string_view text) {
    if (!is_name(text)) return false;
    step();
    return true;
  }
  std::string shown() const {
    switch (word().kind) {
      case Word::Kind::end:
        return "the end of the template";
      case Word::Kind::block_end:
        return "'%}'";
      case Word::Kind::variable_end:
        return "'}}'";
      default:
        return "'" + word().text.substr(0, 40) + "'";
    }
  }
  Status expected(const char* what) const {
    return make_error(BLEND_E_FORMAT, "line %zu of the chat template: %s where %s should stand",
                      word().line, shown().c_str(), what);
  }
  Status refused(const std::string& what) const {
    return make_error(BLEND_E_UNSUPPORTED,
                      "line %zu of the chat template: %s, which libblend does not know; give "
                      "another template",
                      word().line, what.c_str());
  }
  Status need_op(const char* text) {
    if (take_op(text)) return Status::ok();
    return expected((std::string("'") + text + "'").c_str());
  }
  Status end_block() {
    if (word().kind != Word::Kind::block_end) return expected("'%}'");
    step();
    return Status::ok();
  }
  Result<std::string> a_name() {
    if (word().kind != Word::Kind::name) return expected("a name");
    std::string name = word().text;
    step();
    return name;
  }

  // Counts how deep the parser is inside itself.
  class Nesting {
   public:
    explicit Nesting(int& depth) : depth_(++depth) {}
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    bool too_deep() const { return depth_ > kMaxNesting; }

   private:
    int& depth_;
  };
  Status too_deep() const {
    return make_error(BLEND_E_UNSUPPORTED,
                      "line %zu of the chat template: nested more than %d deep", word().line,
                      kMaxNesting);
  }

  // ---- statements

  // Up to a tag among `ends`, whose name is taken and put into `end`; without ends up to the
  // template's end.
  Status body(Body& out, std::initializer_list<const char*> ends, std::string& end) {
    const Nesting nesting(depth_);
    if (nesting.too_deep()) return too_deep();
    while (true) {
      auto statement = std::make_unique<Statement>();
      statement->line = word().line;
      if (word().kind == Word::Kind::end) {
        if (ends.size() == 0) return Status::ok();
        return expected((std::string("'{% ") + *ends.begin() + " %}'").c_str());
      }
      if (word().kind == Word::Kind::data) {
        statement->data = word().text;
        step();
      } else if (word().kind == Word::Kind::variable_begin) {
        step();
        statement->kind = Statement::Kind::write;
        BLEND_ASSIGN(statement->value, tuple(true));
        if (word().kind != Word::Kind::variable_end) return expected("'}}'");
        step();
      } else {
        step();  // {%
        BLEND_ASSIGN(const std::string tag, a_name());
        if (std::find(ends.begin(), ends.end(), tag) != ends.end()) {
          end = tag;
          return Status::ok();
        }
        BLEND_RETURN_IF_ERROR(block(tag, *statement));
      }
      out.push_back(std::move(statement));
    }
  }

  Status closed_body(Body& out, const char* end) {
    std::string tag;
    BLEND_RETURN_IF_ERROR(body(out, {end}, tag));
    return end_block();
  }

  Status block(const std::string& tag, Statement& s) {
    if (tag == "if") return condition(s);
    if (tag == "for") return loop(s);
    if (tag == "set") return set(s);
    if (tag == "macro") return macro(s);
    if (tag == "generation") {  // marks for training what the assistant says
      s.kind = Statement::Kind::body;
      BLEND_RETURN_IF_ERROR(end_block());
      return closed_body(s.body, "endgeneration");
    }
    if (tag == "filter") {
      s.kind = Statement::Kind::filter_block;
      BLEND_ASSIGN(s.value, filters(nullptr));
      BLEND_RETURN_IF_ERROR(end_block());
      return closed_body(s.body, "endfilter");
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) return expected("a tag inside of a loop");
      s.kind = tag == "break" ? Statement::Kind::break_loop : Statement::Kind::continue_loop;
      return end_block();
    }
    for (const char* const known : {"block", "extends", "include", "import", "from", "call", "with",
                                    "autoescape", "do", "trans", "debug"}) {
      if (tag == known) return refused("a tag '{% " + tag + " %}'");
    }
    return make_error(BLEND_E_FORMAT,
                      "line %zu of the chat template: an unknown tag '{%% %.40s %%}'", s.line,
                      tag.c_str());
  }

  Status condition(Statement& s) {
    s.kind = Statement::Kind::condition;
    std::string end = "elif";
    while (end == "elif") {
      s.branches.emplace_back();
      BLEND_ASSIGN(s.branches.back().first, tuple(true));
      BLEND_RETURN_IF_ERROR(end_block());
      BLEND_RETURN_IF_ERROR(body(s.branches.back().second, {"endif", "elif", "else"}, end));
    }
    if (end == "else") {
      BLEND_RETURN_IF_ERROR(end_block());
      BLEND_RETURN_IF_ERROR(body(s.otherwise, {"endif"}, end));
    }
    return end_block();
  }

  Status loop(Statement& s) {
    s.kind = Statement::Kind::loop;
    BLEND_ASSIGN(s.target, target(false));
    if (!take_name("in")) return expected("'in'");
    BLEND_ASSIGN(s.value, tuple(false));
    if (take_name("if")) {
      BLEND_ASSIGN(s.filter, expression());
    }
    if (is_name("recursive")) return refused("a loop that is 'recursive'");
    BLEND_RETURN_IF_ERROR(end_block());
    std::string end;
    ++loops_;
    const Status inside = body(s.body, {"endfor", "else"}, end);
    --loops_;
    BLEND_RETURN_IF_ERROR(inside);
    if (end == "else") {
      BLEND_RETURN_IF_ERROR(end_block());
      BLEND_RETURN_IF_ERROR(body(s.otherwise, {"endfor"}, end));
    }
    return end_block();
  }

  Result<Target> target(bool members) {
    Target out;
    const bool bracket = take_op("(");
    while (true) {
      if (word().kind == Word::Kind::name &&
          (word().text == "true" || word().text == "false" || word().text == "none")) {
        return expected("a name that can be assigned to");
      }
      BLEND_ASSIGN(std::string name, a_name());
      out.names.push_back(std::move(name));
      if (members && out.names.size() == 1 && take_op(".")) {
        BLEND_ASSIGN(out.member, a_name());
        return out;
      }
      if (!take_op(",")) break;
      out.tuple = true;
      if (word().kind != Word::Kind::name || is_name("in")) break;
    }
    if (bracket) BLEND_RETURN_IF_ERROR(need_op(")"));
    return out;
  }

  Status set(Statement& s) {
    s.kind = Statement::Kind::set;
    BLEND_ASSIGN(s.target, target(true));
    if (take_op("=")) {
      BLEND_ASSIGN(s.value, tuple(true));
      return end_block();
    }
    s.kind = Statement::Kind::set_block;
    if (s.target.tuple) return expected("'='");
    if (is_op("|")) {
      BLEND_ASSIGN(s.value, filters(nullptr));
    }
    BLEND_RETURN_IF_ERROR(end_block());
    return closed_body(s.body, "endset");
  }

  Status macro(Statement& s) {
    s.kind = Statement::Kind::macro;
    BLEND_ASSIGN(s.macro.name, a_name());
    BLEND_RETURN_IF_ERROR(need_op("("));
    while (!is_op(")")) {
      BLEND_ASSIGN(std::string name, a_name());
      ExpressionPtr otherwise;
      if (take_op("=")) {
        BLEND_ASSIGN(otherwise, expression());
      }
      s.macro.parameters.emplace_back(std::move(name), std::move(otherwise));
      if (!take_op(",")) break;
    }
    BLEND_RETURN_IF_ERROR(need_op(")"));
    BLEND_RETURN_IF_ERROR(end_block());
    const int loops = std::exchange(loops_, 0);
    Status inside = closed_body(s.macro.body, "endmacro");
    loops_ = loops;
    return inside;
  }

  // ---- expressions, from the loosest binding to the tightest

  Result<ExpressionPtr> make(Kind kind, std::string name, std::vector<ExpressionPtr> parts,
                             Arguments arguments = {}) {
    auto e = std::make_unique<Expression>();
    e->kind = kind;
    e->line = word().line;
    e->name = std::move(name);
    const auto below = [&](const ExpressionPtr& part) {
      if (part != nullptr) e->depth = std::max(e->depth, part->depth + 1);
    };
    for (const ExpressionPtr& part : parts) below(part);
    for (const ExpressionPtr& part : arguments.positional) below(part);
    for (const auto& [argument, part] : arguments.named) below(part);
    if (e->depth > kMaxChain) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "line %zu of the chat template: an expression of more than %d steps",
                        e->line, kMaxChain);
    }
    e->parts = std::move(parts);
    e->arguments = std::move(arguments);
    return ExpressionPtr(std::move(e));
  }
  Result<ExpressionPtr> make(Kind kind, std::string name, ExpressionPtr a,
                             ExpressionPtr b = nullptr) {
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(a));
    if (b != nullptr) parts.push_back(std::move(b));
    return make(kind, std::move(name), std::move(parts));
  }
  ExpressionPtr constant(Value value) {
    auto e = std::make_unique<Expression>();
    e->line = word().line;
    e->constant = std::move(value);
    return e;
  }

  // One expression, or several with commas between them.
  Result<ExpressionPtr> tuple(bool conditions) {
    BLEND_ASSIGN(ExpressionPtr first, conditions ? expression() : either());
    if (!is_op(",")) return first;
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(first));
    while (take_op(",")) {
      if (word().kind == Word::Kind::block_end || word().kind == Word::Kind::variable_end ||
          is_op(")")) {
        break;
      }
      BLEND_ASSIGN(ExpressionPtr part, conditions ? expression() : either());
      parts.push_back(std::move(part));
    }
    return make(Kind::list, "", std::move(parts));
  }

  Result<ExpressionPtr> expression() {
    const Nesting nesting(depth_);
    if (nesting.too_deep()) return too_deep();
    BLEND_ASSIGN(ExpressionPtr e, either());
    while (take_name("if")) {
      std::vector<ExpressionPtr> parts;
      parts.push_back(std::move(e));
      BLEND_ASSIGN(ExpressionPtr when, either());
      parts.push_back(std::move(when));
      ExpressionPtr otherwise;
      if (take_name("else")) {
        BLEND_ASSIGN(otherwise, expression());
      }
      parts.push_back(std::move(otherwise));
      BLEND_ASSIGN(e, make(Kind::condition, "", std::move(parts)));
    }
    return e;
  }

  Result<ExpressionPtr> either() {
    BLEND_ASSIGN(ExpressionPtr left, both());
    while (take_name("or")) {
      BLEND_ASSIGN(ExpressionPtr right, both());
      BLEND_ASSIGN(left, make(Kind::either, "", std::move(left), std::move(right)));
    }
    return left;
  }
  Result<ExpressionPtr> both() {
    BLEND_ASSIGN(ExpressionPtr left, negation());
    while (take_name("and")) {
      BLEND_ASSIGN(ExpressionPtr right, negation());
      BLEND_ASSIGN(left, make(Kind::both, "", std::move(left), std::move(right)));
    }
    return left;
  }
  Result<ExpressionPtr> negation() {
    if (!take_name("not")) return compare();
    const Nesting nesting(depth_);
    if (nesting.too_deep()) return too_deep();
    BLEND_ASSIGN(ExpressionPtr e, negation());
    return make(Kind::negation, "", std::move(e));
  }

  Result<ExpressionPtr> compare() {
    BLEND_ASSIGN(ExpressionPtr first, sum());
    std::vector<ExpressionPtr> parts;
    std::vector<std::string> names;
    while (true) {
      std::string name;
      for (const char* const op : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (is_op(op)) name = op;
      }
      if (is_name("in")) name = "in";
      if (is_name("not") && next_word().kind == Word::Kind::name && next_word().text == "in") {
        step();
        name = "not in";
      }
      if (name.empty()) break;
      step();
      if (parts.empty()) parts.push_back(std::move(first));
      BLEND_ASSIGN(ExpressionPtr right, sum());
      parts.push_back(std::move(right));
      names.push_back(std::move(name));
    }
    if (parts.empty()) return first;
    auto e = std::make_unique<Expression>();
    e->kind = Kind::compare;
    e->line = word().line;
    e->names = std::move(names);
    for (const ExpressionPtr& part : parts) e->depth = std::max(e->depth, part->depth + 1);
    e->parts = std::move(parts);
    return ExpressionPtr(std::move(e));
  }

  using Level = Result<ExpressionPtr> (Parser::*)();
  Result<ExpressionPtr> chain(Level tighter, std::initializer_list<const char*> ops) {
    BLEND_ASSIGN(ExpressionPtr left, (this->*tighter)());
    while (true) {
      const auto op =
          std::find_if(ops.begin(), ops.end(), [&](const char* text) { return is_op(text); });
      if (op == ops.end()) return left;
      step();
      BLEND_ASSIGN(ExpressionPtr right, (this->*tighter)());
      BLEND_ASSIGN(left, make(Kind::binary, *op, std::move(left), std::move(right)));
    }
  }
  Result<ExpressionPtr> sum() { return chain(&Parser::joined, {"+", "-"}); }
  Result<ExpressionPtr> joined() { return chain(&Parser::product, {"~"}); }
  Result<ExpressionPtr> product() { return chain(&Parser::power, {"*", "//", "/", "%"}); }
  Result<ExpressionPtr> power() { return chain(&Parser::filtered_unary, {"**"}); }
  Result<ExpressionPtr> filtered_unary() { return unary(true); }

  Result<ExpressionPtr> unary(bool with_filters) {
    const Nesting nesting(depth_);
    if (nesting.too_deep()) return too_deep();
    ExpressionPtr e;
    if (is_op("-") || is_op("+")) {
      const Kind kind = is_op("-") ? Kind::minus : Kind::plus;
      step();
      BLEND_ASSIGN(ExpressionPtr inner, unary(false));
      BLEND_ASSIGN(e, make(kind, "", std::move(inner)));
    } else {
      BLEND_ASSIGN(e, primary());
    }
    BLEND_ASSIGN(e, postfix(std::move(e)));
    if (!with_filters) return e;
    return filters(std::move(e));
  }

  Result<ExpressionPtr> primary() {
    const Word w = word();
    switch (w.kind) {
      case Word::Kind::name:
        step();
        if (w.text == "true" || w.text == "True") return constant(Value::of(true));
        if (w.text == "false" || w.text == "False") return constant(Value::of(false));
        if (w.text == "none" || w.text == "None") return constant(Value::none());
        if (w.text == "documents") names_documents_ = true;
        return make(Kind::name, w.text, std::vector<ExpressionPtr>());
      case Word::Kind::string: {
        std::string text;
        while (word().kind == Word::Kind::string) {
          text += word().text;
          step();
        }
        return constant(Value::text(text));
      }
      case Word::Kind::integer: {
        step();
        int64_t n = 0;
        const auto end = std::from_chars(w.text.data(), w.text.data() + w.text.size(), n);
        if (end.ec != std::errc()) return expected("a number of less than 64 bits");
        return constant(Value::of(n));
      }
      case Word::Kind::real: {
        step();
        double x = 0;
        const auto end = std::from_chars(w.text.data(), w.text.data() + w.text.size(), x);
        if (end.ec != std::errc()) return expected("a number in the range of a double");
        return constant(Value::of(x));
      }
      default:
        break;
    }
    if (take_op("(")) {
      if (take_op(")")) return make(Kind::list, "", std::vector<ExpressionPtr>());
      BLEND_ASSIGN(ExpressionPtr e, tuple(true));
      BLEND_RETURN_IF_ERROR(need_op(")"));
      return e;
    }
    if (take_op("[")) return items(Kind::list, "]");
    if (take_op("{")) return items(Kind::dict, "}");
    return expected("an expression");
  }

  Result<ExpressionPtr> items(Kind kind, const char* closing) {
    std::vector<ExpressionPtr> parts;
    while (!is_op(closing)) {
      BLEND_ASSIGN(ExpressionPtr e, expression());
      parts.push_back(std::move(e));
      if (kind == Kind::dict) {
        BLEND_RETURN_IF_ERROR(need_op(":"));
        BLEND_ASSIGN(ExpressionPtr value, expression());
        parts.push_back(std::move(value));
      }
      if (!take_op(",")) break;
    }
    BLEND_RETURN_IF_ERROR(need_op(closing));
    return make(kind, "", std::move(parts));
  }

  Result<ExpressionPtr> postfix(ExpressionPtr e) {
    while (true) {
      if (take_op(".")) {
        if (word().kind == Word::Kind::integer) {
          BLEND_ASSIGN(ExpressionPtr index, primary());
          BLEND_ASSIGN(e, make(Kind::item, "", std::move(e), std::move(index)));
          continue;
        }
        BLEND_ASSIGN(const std::string name, a_name());
        BLEND_ASSIGN(e, make(Kind::member, name, std::move(e)));
      } else if (take_op("[")) {
        BLEND_ASSIGN(e, subscript(std::move(e)));
      } else if (is_op("(")) {
        BLEND_ASSIGN(Arguments given, arguments());
        std::vector<ExpressionPtr> parts;
        parts.push_back(std::move(e));
        BLEND_ASSIGN(e, make(Kind::call, "", std::move(parts), std::move(given)));
      } else {
        return e;
      }
    }
  }

  Result<ExpressionPtr> subscript(ExpressionPtr e) {
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(e));
    bool slice = false;
    for (int i = 0; i < 3; ++i) {
      ExpressionPtr part;
      if (!is_op(":") && !is_op("]")) {
        BLEND_ASSIGN(part, expression());
      }
      parts.push_back(std::move(part));
      if (!take_op(":")) break;
      slice = true;
    }
    BLEND_RETURN_IF_ERROR(need_op("]"));
    if (!slice) {
      if (parts[1] == nullptr) return expected("an index");
      return make(Kind::item, "", std::move(parts));
    }
    parts.resize(4);
    return make(Kind::slice, "", std::move(parts));
  }

  Result<Arguments> arguments() {
    Arguments out;
    BLEND_RETURN_IF_ERROR(need_op("("));
    while (!is_op(")")) {
      if (is_op("*") || is_op("**")) return refused("arguments by '*'");
      if (word().kind == Word::Kind::name && next_word().kind == Word::Kind::op &&
          next_word().text == "=") {
        std::string name = word().text;
        step();
        step();
        BLEND_ASSIGN(ExpressionPtr value, expression());
        out.named.emplace_back(std::move(name), std::move(value));
      } else {
        if (!out.named.empty()) return expected("a named argument");
        BLEND_ASSIGN(ExpressionPtr value, expression());
        out.positional.push_back(std::move(value));
      }
      if (!take_op(",")) break;
    }
    BLEND_RETURN_IF_ERROR(need_op(")"));
    return out;
  }

  // Filters and tests behind an expression. Null: those of a block, of which the first has no '|'.
  Result<ExpressionPtr> filters(ExpressionPtr e) {
    bool first = e == nullptr && !is_op("|");
    while (first || is_op("|") || is_name("is") || is_op("(")) {
      if (first || take_op("|")) {
        first = false;
        BLEND_ASSIGN(std::string name, a_name());
        while (take_op(".")) {
          BLEND_ASSIGN(const std::string more, a_name());
          name += "." + more;
        }
        Arguments given;
        if (is_op("(")) {
          BLEND_ASSIGN(given, arguments());
        }
        std::vector<ExpressionPtr> parts;
        parts.push_back(std::move(e));
        BLEND_ASSIGN(e, make(Kind::filter, name, std::move(parts), std::move(given)));
      } else if (is_op("(")) {
        BLEND_ASSIGN(Arguments given, arguments());
        std::vector<ExpressionPtr> parts;
        parts.push_back(std::move(e));
        BLEND_ASSIGN(e, make(Kind::call, "", std::move(parts), std::move(given)));
      } else {
        step();  // is
        BLEND_ASSIGN(e, test(std::move(e)));
      }
    }
    return e;
  }

  Result<ExpressionPtr> test(ExpressionPtr e) {
    const bool negated = take_name("not");
    BLEND_ASSIGN(const std::string name, a_name());
    Arguments given;
    const Word::Kind kind = word().kind;
    const bool value = kind == Word::Kind::string || kind == Word::Kind::integer ||
                       kind == Word::Kind::real || is_op("[") || is_op("{") ||
                       (kind == Word::Kind::name && !is_name("else") && !is_name("or") &&
                        !is_name("and") && !is_name("is") && !is_name("if") && !is_name("in") &&
                        !is_name("not") && !is_name("recursive"));
    if (is_op("(")) {
      BLEND_ASSIGN(given, arguments());
    } else if (value) {
      BLEND_ASSIGN(ExpressionPtr argument, primary());
      BLEND_ASSIGN(argument, postfix(std::move(argument)));
      given.positional.push_back(std::move(argument));
    }
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(e));
    BLEND_ASSIGN(e, make(Kind::test, name, std::move(parts), std::move(given)));
    if (!negated) return e;
    return make(Kind::negation, "", std::move(e));
  }

  std::vector<Word> words_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
  bool names_documents_ = false;
};

}  // namespace

Result<Syntax> parse(std::string_view source) {
  BLEND_ASSIGN(std::vector<Word> words, read_words(source));
  return Parser(std::move(words)).run();
}

}  // namespace blend::chat
