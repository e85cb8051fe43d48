// A template is a stranger's: what it takes of time, memory and stack is paid for before it is
// taken.
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>

#include <chrono>
#include <functional>
#include <new>
#include <string>
#include <thread>

#include "chat/template.h"

namespace {

// The memory of this process, and its maximum so far.
std::atomic<size_t> held{0};
std::atomic<size_t> most_held{0};

void* counted(size_t n) {
  void* const p = malloc(n == 0 ? 1 : n);
  if (p == nullptr) throw std::bad_alloc();
  const size_t now = held += malloc_usable_size(p);
  if (now > most_held) most_held = now;
  return p;
}
void uncounted(void* p) {
  if (p != nullptr) held -= malloc_usable_size(p);
  free(p);
}

}  // namespace

void* operator new(size_t n) { return counted(n); }
void* operator new[](size_t n) { return counted(n); }
void* operator new(size_t n, const std::nothrow_t&) noexcept { return counted(n); }
void* operator new[](size_t n, const std::nothrow_t&) noexcept { return counted(n); }
void operator delete(void* p) noexcept { uncounted(p); }
void operator delete[](void* p) noexcept { uncounted(p); }
void operator delete(void* p, size_t) noexcept { uncounted(p); }
void operator delete[](void* p, size_t) noexcept { uncounted(p); }

namespace blend::chat {
namespace {

std::string times(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

Result<Text> render(const std::string& source, size_t fuel = Template::kFuel,
                    const Variables& variables = {}, const CancelToken* cancel = nullptr) {
  auto parsed = Template::parse(source);
  if (!parsed.is_ok()) return parsed.status();
  return parsed->render(variables, 0, fuel, cancel);
}

void expect_too_much(const std::string& source, size_t fuel = Template::kFuel,
                     const Variables& variables = {}) {
  SCOPED_TRACE(source.substr(0, 200));
  auto text = render(source, fuel, variables);
  ASSERT_FALSE(text.is_ok());
  EXPECT_EQ(text.status().code(), BLEND_E_UNSUPPORTED) << text.status().message();
  EXPECT_NE(text.status().message().find("more work or memory"), std::string::npos)
      << text.status().message();
}

std::string ok_or_message(Result<Text> text) {
  return text.is_ok() ? text->bytes() : "error: " + text.status().message();
}

TEST(ChatBounds, EqualityOfWhatSharesPartsIsPaidFor) {
  constexpr size_t kFuel = size_t{4} << 20;
  const std::string lists =
      "{% set a = namespace(l=[1]) %}{% set b = namespace(l=[1]) %}{% for i in range(40) %}"
      "{% set a.l = [a.l, a.l] %}{% set b.l = [b.l, b.l] %}{% endfor %}";
  const std::string dicts =
      "{% set a = namespace(l=[1]) %}{% set b = namespace(l=[1]) %}{% for i in range(40) %}"
      "{% set a.l = {'x': a.l, 'y': a.l} %}{% set b.l = {'x': b.l, 'y': b.l} %}{% endfor %}";
  for (const std::string& two : {lists, dicts}) {
    for (const char* const use :
         {"{{ a.l == b.l }}", "{{ a.l != b.l }}", "{{ a.l in [b.l] }}", "{{ a.l is eq(b.l) }}",
          "{{ a.l is ne(b.l) }}", "{{ [b.l] | select('eq', a.l) | list | length }}",
          "{{ {'k': a.l} == {'k': b.l} }}", "{{ a.l }}", "{{ a.l ~ '' }}", "{{ a.l | string }}",
          "{{ a.l | tojson }}", "{{ a.l | tojson(indent=2) }}", "{{ [a.l] | join }}",
          "{{ a.l | trim }}"}) {
      expect_too_much(two + use, kFuel);
    }
  }
  expect_too_much(lists + "{{ a.l < b.l }}", kFuel);
  expect_too_much(lists + "{{ a.l >= b.l }}", kFuel);
  // One list is equal to itself, and what differs is found soon.
  EXPECT_EQ(ok_or_message(render(lists + "{{ a.l == a.l }}{{ a.l == [b.l] }}")), "TrueFalse");
}

TEST(ChatBounds, WhatIsPrintedIsPaidForBeforeItIsThere) {
  constexpr size_t kFuel = size_t{4} << 20;
  // Long separators, indents, and lists that share parts: far more is written than is held.
  for (const std::string source :
       {"{% set s = 'xxxxxxxx' * 8192 %}{{ range(9999) | list | tojson(separators=(s, s)) }}",
        "{% set s = 'xxxxxxxx' * 8192 %}{{ range(9999) | join(s) }}",
        "{% set s = 'xxxxxxxx' * 8192 %}{{ s.join(['x'] * 9999) }}",
        "{% set s = 'x' * 9999 %}{{ s.replace('x', s) }}",
        "{% set s = 'x' * 9999 %}{{ s | replace('x', s) }}",
        "{% set s = 'x\n' * 9999 %}{{ s | indent('y' * 9999) }}",
        "{% set s = 'x\n' * 9999 %}{{ [s] * 9999 }}", "{{ 'xxxxxxxx' * 99999999 }}",
        "{{ [1, 2] * 99999999 }}", "{{ 99999999 * (1, 2) }}",
        "{% set n = namespace(l=['\\u0001\\u0001' * 999]) %}{% for i in range(40) %}"
        "{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l | tojson(indent=16) }}",
        "{{ ('x ' * 99999).split() }}", "{{ ('x' * 999999) | list }}", "{{ range(999999) | list }}",
        "{% set n = namespace(s='\n') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}"
        "{% endfor %}",
        "{% set n = namespace(s=[0]) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}"
        "{% endfor %}",
        "{% for i in range(99999) %}{% set x = namespace(a=i, b=i, c=i) %}{% endfor %}",
        "{% for i in range(99999) %}{{ undefined_name_of_many_letters }}{% endfor %}",
        "{% set x = range(9999) | list %}{% for i in range(999) %}{% for y in x | list %}"
        "{% break %}{% endfor %}{% endfor %}"}) {
    SCOPED_TRACE(source.substr(0, 100));
    const size_t before = held;
    most_held = before;
    expect_too_much(source, kFuel);
    // A vector or a string that grows is there twice for a moment.
    EXPECT_LT(most_held - before, 3 * kFuel + (size_t{1} << 20));
  }
}

// The least fuel that is enough.
size_t fuel_of(const std::string& source) {
  size_t low = 0;
  size_t high = size_t{1} << 27;
  while (low + 1 < high) {
    const size_t middle = low + (high - low) / 2;
    (render(source, middle).is_ok() ? high : low) = middle;
  }
  return high;
}

// Over in some milliseconds each, where comparing at every place would take minutes.
TEST(ChatBounds, SearchesGrowWithTheTextsAndNotWithTheirProduct) {
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string use :
       {"{{ needle in text }}", "{{ text.find(needle) }}",
        "{{ text.replace(needle, 'x') | length }}", "{{ text | replace(needle, 'x') | length }}",
        "{{ text.split(needle) | length }}", "{{ text.rsplit(needle) | length }}",
        "{{ text.strip(needle) | length }}", "{{ text.startswith(needle) }}",
        "{{ needle in other }}", "{{ other.find(needle) }}",
        "{{ accents.strip(letters) | length }}"}) {
    SCOPED_TRACE(use);
    const auto source = [&](int n) {
      const std::string size = std::to_string(n);
      return "{% set text = 'a' * " + size + " %}{% set needle = text[:-1] ~ 'b' ~ text %}" +
             "{% set text = text ~ text ~ text %}{% set other = text ~ needle %}" +
             "{% set accents = 'é' * " + size + " %}{% set letters = 'è' * " + size + " ~ 'é' %}" +
             use;
    };
    auto text = render(source(1 << 19), size_t{1} << 32);
    EXPECT_TRUE(text.is_ok()) << text.status().message();
    EXPECT_LT(fuel_of(source(1 << 12)), 5 * fuel_of(source(1 << 10))) << "of four times the texts";
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

// Names: of dicts, of variables, of namespaces, of a macro's arguments.
TEST(ChatBounds, NamesAreFoundInLogarithmicTime) {
  const auto many = [](int n, const std::string& before, const char* each,
                       const std::string& after) {
    std::string out = before;
    for (int i = 0; i < n; ++i) {
      char one[128];
      std::snprintf(one, sizeof one, each, i, i);
      out += one;
    }
    return out + after;
  };
  const auto begin = std::chrono::steady_clock::now();
  for (int kind = 0; kind < 8; ++kind) {
    SCOPED_TRACE(kind);
    const auto source = [&](int n) -> std::string {
      const std::string half = std::to_string(n / 2);
      switch (kind) {
        case 0:
          return many(n, "{{ {", "'n%d':%d,", "} | length }}");
        case 1:
          return many(n, "", "{%%set n%d=1%%}", "{{ n" + half + " }}");
        case 2:
          return many(n, "{% set s = namespace() %}", "{%%set s.n%d=1%%}", "{{ s.n" + half + " }}");
        case 3:
          return many(n, "{{ dict(", "n%d=%d,", ") | length }}");
        case 4:
          return many(n, "{% macro m(", "n%d,", ") %}x{% endmacro %}") +
                 many(n, "{{ m(", "n%d=1,", ") }}");
        case 5:
          return many(n, "{% set d = {", "'n%d':%d,", "} %}{{ d == d }}") +
                 "{% for k, v in d.items() %}{% set x = d[k] %}{% if k in d %}{% endif %}{% endfor "
                 "%}";
        case 6:
          return many(n, "{{ [", "'n%d',", "] | unique | list | length }}");
        default:
          return many(n, "{% set a = {", "'n%d':%d,", "} %}") +
                 many(n, "{% set b = {", "'n%d':%d,", "} %}{{ a == b }}");
      }
    };
    auto text = render(source(10000));
    EXPECT_TRUE(text.is_ok()) << text.status().message();
    // 16 times as many, a logarithm of 2.2 times as much.
    EXPECT_LT(fuel_of(source(2048)), 36 * fuel_of(source(128)));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

// Each item would look through all of them.
TEST(ChatBounds, AnArgumentIsNamedOnce) {
  const auto begin = std::chrono::steady_clock::now();
  auto text = render("{{ range(50000) | map('tojson'" + times(", indent=1", 60000) +
                     ") | list | length }}");
  ASSERT_FALSE(text.is_ok());
  EXPECT_EQ(text.status().code(), BLEND_E_UNSUPPORTED) << text.status().message();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(ChatBounds, NamesOfMappingsAreTextsAndNumbers) {
  EXPECT_EQ(ok_or_message(render("{{ {1: 'a', 1.0: 'b', true: 'c', 'x': 2, none: 3} }}")),
            "{1: 'c', 'x': 2, None: 3}");
  EXPECT_EQ(ok_or_message(render("{{ {1: 'a'}[true] }}{{ {1: 'a'}[1.0] }}{{ {1: 2}['1'] }}")),
            "aa");
  for (const char* const source : {"{{ {[1]: 2} }}", "{{ {{}: 2} }}", "{{ {range: 2} }}"}) {
    auto text = render(source);
    ASSERT_FALSE(text.is_ok());
    EXPECT_EQ(text.status().code(), BLEND_E_INVALID_ARGUMENT) << text.status().message();
    EXPECT_NE(text.status().message().find("names a member"), std::string::npos)
        << text.status().message();
  }
}

// Their end is a call within a call, however many there are.
TEST(ChatBounds, LoopsThatHoldLoopsNestNoDeeperThanLists) {
  for (const char* const held : {"loop", "loop.cycle"}) {
    auto text = render(std::string("{% set n = namespace(l=1) %}{% for i in range(20000) %}"
                                   "{% for x in [n.l] %}{% set n.l = ") +
                       held + " %}{% endfor %}{% endfor %}");
    ASSERT_FALSE(text.is_ok());
    EXPECT_EQ(text.status().code(), BLEND_E_UNSUPPORTED) << text.status().message();
    EXPECT_NE(text.status().message().find("deep"), std::string::npos) << text.status().message();
  }
}

// The inner loop's names are put aside while the outer one's filter is asked.
TEST(ChatBounds, AFilterThatAsksALoopInsideIsRefused) {
  const std::string inner =
      "{% for c in [1] %}{% for e in [2] %}{% for b in [1, 2, 3] if b %}{% set n.b = loop %}"
      "{{ n.a.last }}{% endfor %}{% endfor %}{% endfor %}";
  for (const std::string& body : {inner, std::string("{{ m() }}")}) {
    auto text = render("{% set n = namespace(a=0, b=0) %}{% macro m() %}" + inner +
                       "{% endmacro %}{% for a in [1, 2, 3] if not n.b or n.b.last or true %}"
                       "{% set n.a = loop %}" +
                       body + "{% set n.b = 0 %}{% endfor %}");
    ASSERT_FALSE(text.is_ok());
    EXPECT_EQ(text.status().code(), BLEND_E_UNSUPPORTED) << text.status().message();
    EXPECT_NE(text.status().message().find("loop inside"), std::string::npos)
        << text.status().message();
  }
  // One that began before the outer one, or within the filter, is asked as ever.
  EXPECT_EQ(ok_or_message(
                render("{% set n = namespace() %}{% macro m() %}{% for z in [1, 2] if z > 1 %}"
                       "{{ loop.length }}{% endfor %}{% endmacro %}{% for o in [1, 2] if o %}"
                       "{% set n.o = loop %}{% for a in [1, 2] if m() == '1' and n.o.length == 2 %}"
                       "{{ a }}{{ loop.last }}{% endfor %}{% endfor %}")),
            "1False2True1False2True");
}

TEST(ChatBounds, ACancelStopsIt) {
  CancelToken cancel;
  cancel.request();
  auto text = render("{% for i in range(9) %}x{% endfor %}", Template::kFuel, {}, &cancel);
  ASSERT_FALSE(text.is_ok());
  EXPECT_EQ(text.status().code(), BLEND_E_CANCELLED) << text.status().message();
  cancel.reset();
  EXPECT_TRUE(render("x", Template::kFuel, {}, &cancel).is_ok());
  // One that is raised meanwhile, of a template that would run for minutes.
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    cancel.request();
  });
  text = render(
      "{% for i in range(9999) %}{% for j in range(9999) %}{% if i == j %}{% endif %}"
      "{% endfor %}{% endfor %}",
      SIZE_MAX / 2, {}, &cancel);
  other.join();
  ASSERT_FALSE(text.is_ok());
  EXPECT_EQ(text.status().code(), BLEND_E_CANCELLED) << text.status().message();
}

// A host may give long texts and lists: one filter over them is stopped in its midst.
TEST(ChatBounds, ACancelIsSeenInTheMidstOfALongText) {
  Variables given;
  given.emplace("x", Value::text(std::string(size_t{8} << 20, 'x'), kMessage));
  List names;
  for (int i = 0; i < 100000; ++i) {
    names.push_back(Value::text("a name of " + std::to_string(i * 7919 % 100003), kMessage));
  }
  given.emplace("names", *Value::list(std::move(names)));
  for (const char* const use :
       {"{{ x.strip('xy') }}", "{{ x | upper | length }}", "{{ x | title | length }}",
        "{{ x[::2] | length }}", "{{ names | sort | length }}",
        "{{ names | unique | list | length }}"}) {
    SCOPED_TRACE(use);
    const std::string source = use;
    const auto whole = [&] {
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_TRUE(render(source, Template::kFuel, given).is_ok());
      return std::chrono::steady_clock::now() - begin;
    }();
    // The other thread may come too late, on a busy machine: then the cancel comes sooner.
    auto wait = whole / 4;
    int32_t code = BLEND_OK;
    for (int tries = 0; code == BLEND_OK && tries < 30; ++tries, wait /= 2) {
      CancelToken cancel;
      std::thread other([&] {
        std::this_thread::sleep_for(wait);
        cancel.request();
      });
      const auto text = render(source, Template::kFuel, given, &cancel);
      other.join();
      code = text.is_ok() ? BLEND_OK : text.status().code();
    }
    EXPECT_EQ(code, BLEND_E_CANCELLED);
  }
}

// The rendered text is tokenized, which takes many times its bytes, so it has a bound of its own.
TEST(ChatBounds, ATextThatOutgrowsWhatIsGivenIsRefused) {
  auto text = render("{{ ('x' * 1000) * 4000 }}");
  ASSERT_FALSE(text.is_ok());
  EXPECT_EQ(text.status().code(), BLEND_E_UNSUPPORTED);
  EXPECT_NE(text.status().message().find("4000000 bytes"), std::string::npos)
      << text.status().message();
  EXPECT_TRUE(render("{{ (('x' * 1000) * 4000) | length }}").is_ok());
  Variables given;
  given.emplace("x", Value::text(std::string(9999999, 'x'), kMessage));
  EXPECT_TRUE(render("{{ x }}{{ x }}", Template::kFuel, given).is_ok());
}

TEST(ChatBounds, ATemplateOfTooManyWordsIsRefused) {
  auto text = render("{{ " + times("1,", 500000) + " }}");
  ASSERT_FALSE(text.is_ok());
  EXPECT_EQ(text.status().code(), BLEND_E_UNSUPPORTED);
  EXPECT_NE(text.status().message().find("words"), std::string::npos) << text.status().message();
}

// ---- the stack

// Sanitizers and builds without optimization have larger frames.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr size_t kStack = size_t{4} << 20;
#else
constexpr size_t kStack = size_t{128} << 10;
#endif

void on_a_small_stack(std::function<void()> work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStack), 0);
  pthread_t thread{};
  const auto run = [](void* p) -> void* {
    (*static_cast<std::function<void()>*>(p))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(ChatBounds, TheDeepestTemplateFitsASmallStack) {
  const auto inside = [](const char* open, const char* middle, const char* close) {
    return [=](int n) { return "{{ " + times(open, n) + middle + times(close, n) + " }}"; };
  };
  const auto blocks = [](const char* open, const char* close) {
    return [=](int n) { return times(open, n) + "x" + times(close, n); };
  };
  const auto grown = [](const char* begin, const char* step, const char* use) {
    return [=](int n) {
      return std::string("{% set n = namespace(a=") + begin + ", b=" + begin +
             ") %}{% for i in range(" + std::to_string(n) + ") %}{% set n.a = " + step +
             " %}{% endfor %}{% set n.c = n.a %}{% set n.a = n.b %}{% for i in range(" +
             std::to_string(n) + ") %}{% set n.a = " + step + " %}{% endfor %}" + use;
    };
  };
  const char* const uses = "{{ n.a }}{{ n.a | tojson }}{{ n.a == n.c }}{{ n.a in [n.c] }}";
  const std::pair<const char*, std::function<std::string(int)>> kKinds[] = {
      {"brackets", inside("(", "1", ")")},
      {"lists", inside("[", "1", "]")},
      {"dicts", inside("{'a': ", "1", "}")},
      {"operators", inside("1 or 1 and 1 == 1 + '1' ~ 2 * 3 ** (", "1", ")")},
      {"operators that go on", inside("0 or (1 and (0 == (1 + ('1' ~ (", "1", ")))))")},
      {"indices", inside("[1][", "0", "]")},
      {"slices", inside("[1][", "0", ":]")},
      {"filters", inside("x | default(", "1", ")")},
      {"tests", inside("1 is eq(", "1", ")")},
      {"calls", inside("range(", "1", ") | length")},
      {"methods", inside("''.join(", "'x'", ")")},
      {"signs", inside("-", "1", "")},
      {"nots", inside("not ", "1", "")},
      {"conditions", inside("1 if 0 else ", "1", "")},
      {"sums", inside("1+", "1", "")},
      {"members", inside("", "x", ".y")},
      {"chained filters", inside("", "'x'", " | trim")},
      {"ifs", blocks("{% if 1 %}", "{% endif %}")},
      {"fors", blocks("{% for a in [1] if a %}", "{% endfor %}")},
      {"sets", blocks("{% set x %}", "{% endset %}")},
      {"filter blocks", blocks("{% filter trim %}", "{% endfilter %}")},
      {"generations", blocks("{% generation %}", "{% endgeneration %}")},
      {"nested lists", grown("[1]", "[n.a]", uses)},
      {"ordered lists", grown("[1]", "[n.a]", "{{ n.a < n.c }}{{ n.a >= n.c }}")},
      {"nested dicts", grown("{}", "{'a': n.a}", uses)},
      {"methods of dicts", grown("{}", "{'a': n.a.items}", "{{ n.a == n.c }}")},
      {"maps",
       [](int n) { return "{{ ['a'] | map(" + times("'map', ", n) + "'upper') | list }}"; }},
      {"macros",
       [](int n) {
         return "{% macro m(x) %}{% if x %}{% for a in [1] %}{{ [m(x - 1)] }}{% endfor %}{% endif "
                "%}"
                "{% endmacro %}{{ m(" +
                std::to_string(n) + ") }}";
       }},
      {"macros in defaults",
       [](int n) {
         return "{% macro m(x, y=[[m(x - 1)]] if x else 1) %}{% set z %}{{ y }}{% endset %}{{ z }}"
                "{% endmacro %}{{ m(" +
                std::to_string(n) + ") }}";
       }},
      {"a filter that asks its own loop",
       [](int) {
         return "{% set n = namespace(l=0) %}{% for a in [1, 2, 3] if not n.l or n.l.last %}"
                "{% set n.l = loop %}{% endfor %}";
       }},
  };
  for (const auto& [name, source] : kKinds) {
    SCOPED_TRACE(name);
    bool last = true;
    // Whatever depth is the last that goes, and what is refused.
    for (int n = 1; n < 400; n += n < 100 ? 1 : 20) {
      on_a_small_stack([&] {
        auto text = render(source(n));
        last = text.is_ok();
        const int32_t code = text.status().code();
        const bool refused = code == BLEND_E_UNSUPPORTED || code == BLEND_E_INVALID_ARGUMENT;
        EXPECT_TRUE(text.is_ok() || refused) << text.status().message();
      });
    }
    EXPECT_FALSE(last) << "nothing bounds it";
  }
}

}  // namespace
}  // namespace blend::chat
