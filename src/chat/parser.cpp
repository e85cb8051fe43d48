#include "chat/parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace blend::chat {
namespace {

using Kind = Expression::Kind;

// Maximum nesting of brackets, operators and blocks, which is the recursion of the parser. It keeps
// the stack below 128 KiB.
constexpr int kMaxNesting = 72;
// Maximum depth of an expression's tree, which is destroyed recursively.
constexpr int kMaxChain = 256;
// Each word becomes a part of the tree, so this bounds the memory of a parsed template.
constexpr size_t kMaxWords = size_t{1} << 17;

class Parser {
 public:
  explicit Parser(std::vector<Word> words) : words_(std::move(words)) {}

  Result<Syntax> run() {
    Syntax out;
    std::string end;
    BLEND_RETURN_IF_ERROR(body(out.body, {}, end));
    out.reads = reads_;
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
        return std::string("'").append(word().text, 0, 40).append("'");
    }
  }
  Status expected(const char* what) const {
    return make_error(BLEND_E_FORMAT, "line %zu of the chat template: %s instead of %s",
                      word().line, shown().c_str(), what);
  }
  Status refused(const std::string& what) const {
    return make_error(BLEND_E_UNSUPPORTED,
                      "line %zu of the chat template: %s, which libblend does not support; give "
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

  // Counts the recursion of the parser.
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

  // Parses up to a tag whose name is in `ends`, takes it and writes the name to `end`. Without
  // `ends`: up to the end of the template.
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
    if (tag == "generation") return generation(s);
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
      if (is_op("(") || is_op("[")) return refused("names in brackets among those assigned to");
      if (word().kind == Word::Kind::name &&
          (word().text == "true" || word().text == "false" || word().text == "none")) {
        return expected("a name that can be assigned to");
      }
      BLEND_ASSIGN(std::string name, a_name());
      out.names.push_back(std::move(name));
      if (members && out.names.size() == 1 && take_op(".")) {
        BLEND_ASSIGN(out.member, a_name());
        if (is_op(",")) return refused("a namespace's member among names that are assigned to");
        return out;
      }
      if (!take_op(",")) break;
      out.tuple = true;
      if (is_op("(") || is_op("[")) continue;
      if (word().kind != Word::Kind::name || is_name("in")) break;
    }
    if (bracket) BLEND_RETURN_IF_ERROR(need_op(")"));
    if (bracket && is_op(",")) return refused("names in brackets among those assigned to");
    return out;
  }

  Status set(Statement& s) {
    s.kind = Statement::Kind::set;
    BLEND_ASSIGN(s.target, target(true));
    if (take_op("=")) {
      BLEND_ASSIGN(s.value, tuple(true));
      BLEND_RETURN_IF_ERROR(no_markup(s.value));
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

  // {% generation %} marks the assistant's text for training. Here its body is just rendered, with
  // no loop around it, as in a macro.
  Status generation(Statement& s) {
    s.kind = Statement::Kind::body;
    BLEND_RETURN_IF_ERROR(end_block());
    const int loops = std::exchange(loops_, 0);
    Status inside = closed_body(s.body, "endgeneration");
    loops_ = loops;
    return inside;
  }

  // Refuses repeated names, as Python does.
  Status check_repeats(const std::vector<std::pair<std::string, ExpressionPtr>>& named,
                       const char* what) const {
    std::vector<std::string_view> names;
    names.reserve(named.size());
    for (const auto& [name, value] : named) names.emplace_back(name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice == names.end()) return Status::ok();
    return refused(
        std::string("'").append(twice->substr(0, 60)).append("' twice among ").append(what));
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
    BLEND_RETURN_IF_ERROR(check_repeats(s.macro.parameters, "a macro's parameters"));
    BLEND_RETURN_IF_ERROR(end_block());
    const int loops = std::exchange(loops_, 0);
    Status inside = closed_body(s.macro.body, "endmacro");
    loops_ = loops;
    return inside;
  }

  // ---- expressions, from the lowest precedence to the highest

  // Whether the value comes from `safe`: HTML would be escaped in texts that are joined with it.
  static bool is_markup(const ExpressionPtr& e) {
    static constexpr std::string_view kKeep[] = {"trim",   "upper",  "lower",   "capitalize",
                                                 "indent", "string", "default", "d"};
    if (e == nullptr) return false;
    if (e->kind == Kind::condition) return is_markup(e->parts[0]) || is_markup(e->parts[2]);
    if (e->kind != Kind::filter) return false;
    return e->name == "safe" ||
           (std::find(std::begin(kKeep), std::end(kKeep), e->name) != std::end(kKeep) &&
            is_markup(e->parts[0]));
  }
  Status no_markup(const ExpressionPtr& e) const {
    return is_markup(e) ? refused("'safe' anywhere but at the end of {{ }}") : Status::ok();
  }

  Result<ExpressionPtr> make(Kind kind, std::string name, std::vector<ExpressionPtr> parts,
                             Arguments arguments = {}, std::vector<std::string> names = {}) {
    if (kind == Kind::member || (kind == Kind::binary && name != "~")) {
      for (const ExpressionPtr& part : parts) BLEND_RETURN_IF_ERROR(no_markup(part));
    }
    for (const ExpressionPtr& part : arguments.positional) {
      BLEND_RETURN_IF_ERROR(no_markup(part));
    }
    for (const auto& [key, part] : arguments.named) BLEND_RETURN_IF_ERROR(no_markup(part));
    auto e = std::make_unique<Expression>();
    e->kind = kind;
    e->line = word().line;
    e->name = std::move(name);
    e->names = std::move(names);
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
    BLEND_ASSIGN(ExpressionPtr first, conditions ? expression() : operators(kOr));
    if (!is_op(",")) return first;
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(first));
    while (take_op(",")) {
      if (word().kind == Word::Kind::block_end || word().kind == Word::Kind::variable_end ||
          is_op(")")) {
        break;
      }
      BLEND_ASSIGN(ExpressionPtr part, conditions ? expression() : operators(kOr));
      parts.push_back(std::move(part));
    }
    return make(Kind::tuple, "", std::move(parts));
  }

  Result<ExpressionPtr> expression() {
    const Nesting nesting(depth_);
    if (nesting.too_deep()) return too_deep();
    BLEND_ASSIGN(ExpressionPtr e, operators(kOr));
    while (take_name("if")) {
      BLEND_ASSIGN(e, condition(std::move(e)));
    }
    return e;
  }

  // After `e if`.
  Result<ExpressionPtr> condition(ExpressionPtr e) {
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(e));
    BLEND_ASSIGN(ExpressionPtr when, operators(kOr));
    parts.push_back(std::move(when));
    ExpressionPtr otherwise;
    if (take_name("else")) {
      BLEND_ASSIGN(otherwise, expression());
    }
    parts.push_back(std::move(otherwise));
    return make(Kind::condition, "", std::move(parts));
  }

  // Precedence of operators, lowest first.
  enum Level : int { kOr, kAnd, kCompare, kSum, kJoin, kProduct, kPower, kNone };
  struct Operator {
    Level level = kNone;
    const char* name = "";
  };

  // The operator that comes next.
  Operator next_operator() const {
    if (word().kind == Word::Kind::op) {
      static constexpr Operator kOps[] = {
          {kCompare, "=="}, {kCompare, "!="}, {kCompare, "<="}, {kCompare, ">="}, {kCompare, "<"},
          {kCompare, ">"},  {kSum, "+"},      {kSum, "-"},      {kJoin, "~"},     {kProduct, "*"},
          {kProduct, "//"}, {kProduct, "/"},  {kProduct, "%"},  {kPower, "**"}};
      for (const Operator& op : kOps) {
        if (word().text == op.name) return op;
      }
      return {};
    }
    if (is_name("or")) return {kOr, "or"};
    if (is_name("and")) return {kAnd, "and"};
    if (is_name("in")) return {kCompare, "in"};
    if (is_name("not") && next_word().kind == Word::Kind::name && next_word().text == "in") {
      return {kCompare, "not in"};
    }
    return {};
  }

  // Operands joined by operators of the precedence `loosest` or higher. One function serves all
  // levels, so nested brackets need little stack.
  Result<ExpressionPtr> operators(Level loosest) {
    const Nesting nesting(depth_);
    if (nesting.too_deep()) return too_deep();
    ExpressionPtr left;
    if (loosest <= kCompare && take_name("not")) {
      BLEND_ASSIGN(ExpressionPtr operand, operators(kCompare));
      BLEND_ASSIGN(left, make(Kind::negation, "", std::move(operand)));
    } else {
      BLEND_ASSIGN(left, unary(true));
    }
    while (true) {
      const Operator op = next_operator();
      if (op.level < loosest || op.level == kNone) return left;
      if (op.level == kCompare) {
        BLEND_ASSIGN(left, compare(std::move(left)));
        continue;
      }
      step();
      const Kind kind = op.level == kOr    ? Kind::either
                        : op.level == kAnd ? Kind::both
                                           : Kind::binary;
      BLEND_ASSIGN(ExpressionPtr right, operators(static_cast<Level>(op.level + 1)));
      BLEND_ASSIGN(left, make(kind, op.name, std::move(left), std::move(right)));
    }
  }

  // a < b == c ...: one expression.
  Result<ExpressionPtr> compare(ExpressionPtr first) {
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(first));
    std::vector<std::string> names;
    for (Operator op; (op = next_operator()).level == kCompare;) {
      if (is_name("not")) step();
      step();
      BLEND_ASSIGN(ExpressionPtr right, operators(kSum));
      parts.push_back(std::move(right));
      names.emplace_back(op.name);
    }
    return make(Kind::compare, "", std::move(parts), {}, std::move(names));
  }

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
    switch (word().kind) {
      case Word::Kind::name:
        return read_name();
      case Word::Kind::string:
        return read_string();
      case Word::Kind::integer:
      case Word::Kind::real:
        return read_number();
      default:
        break;
    }
    if (take_op("(")) {
      if (take_op(")")) return make(Kind::tuple, "", std::vector<ExpressionPtr>());
      BLEND_ASSIGN(ExpressionPtr e, tuple(true));
      BLEND_RETURN_IF_ERROR(need_op(")"));
      return e;
    }
    if (take_op("[")) return items(Kind::list, "]");
    if (take_op("{")) return items(Kind::dict, "}");
    return expected("an expression");
  }

  Result<ExpressionPtr> read_name() {
    const std::string text = word().text;
    step();
    if (text == "true" || text == "True") return constant(Value::of(true));
    if (text == "false" || text == "False") return constant(Value::of(false));
    if (text == "none" || text == "None") return constant(Value::none());
    for (size_t i = 0; i < kAsked.size(); ++i) reads_[i] = reads_[i] || text == kAsked[i];
    return make(Kind::name, text, std::vector<ExpressionPtr>());
  }

  Result<ExpressionPtr> read_string() {
    std::string text;
    for (; word().kind == Word::Kind::string; step()) text += word().text;
    return constant(Value::text(text));
  }

  Result<ExpressionPtr> read_number() {
    const std::string& text = word().text;
    const char* begin = text.data();
    const char* const end = begin + text.size();
    if (word().kind == Word::Kind::real) {
      double x = 0;
      // A value out of a double's range becomes 0 or infinity, as in Python.
      if (std::from_chars(begin, end, x).ec != std::errc()) x = std::strtod(begin, nullptr);
      step();
      return constant(Value::of(x));
    }
    int base = 10;
    if (text.size() > 2 && text[0] == '0' && (text[1] < '0' || text[1] > '9')) {
      const int sign = text[1] | 0x20;
      base = sign == 'x' ? 16 : sign == 'o' ? 8 : 2;
      begin += 2;
    }
    int64_t n = 0;
    if (std::from_chars(begin, end, n, base).ec != std::errc()) {
      return refused("a whole number of more than 64 bits");
    }
    step();
    return constant(Value::of(n));
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
    BLEND_RETURN_IF_ERROR(check_repeats(out.named, "the named arguments of a call"));
    return out;
  }

  // Filters and tests after an expression. If `e` is null, they are those of a filter block, whose
  // first filter has no '|'.
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
  std::array<bool, kAsked.size()> reads_ = {};
};

}  // namespace

Result<Syntax> parse(std::string_view source) {
  BLEND_ASSIGN(std::vector<Word> words, read_words(source, kMaxWords));
  return Parser(std::move(words)).run();
}

}  // namespace blend::chat
