"""Random chat templates, of what Jinja has that such templates use. The same seed makes the same ones."""

STRINGS = ["", "a", "ab", "user", "  x y ", "A-b c", "line\n next\n", "é ü", "<|im_end|>", "1", "'q'", "\t"]
VARIABLES = {
    "messages": [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "  Who?\n"},
                 {"role": "assistant", "content": "Ada.", "tool_calls": [
                     {"function": {"name": "f", "arguments": {"x": [1, 2.5, None, True]}}}]},
                 {"role": "user", "content": "And <b>?"}],
    "tools": None, "n": 3, "big": 1000000007, "f": 2.5, "yes": True, "no": False, "nil": None, "s": "abc Def",
    "words": "to be or not", "numbers": [3, 1, 2, 2], "texts": ["b", "A", "a", "c"], "empty": [], "d": {"a": 1, "b": "x", "k": [1, 2]},
    "rows": [{"r": "u", "n": 1}, {"r": "a", "n": 2}, {"r": "u", "n": 3}],
}


class Grammar:
    """`rng`: a random.Random."""

    def __init__(self, rng):
        self.rng = rng
        self.names = []  # that loops and set made, innermost last
        self.loops = 0
        self.macros = []

    def pick(self, *options):
        return self.rng.choice(options)

    def quoted(self, text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t") + "'"

    # ---- expressions by what they mostly are

    def any(self, d):
        return self.pick(self.text, self.number, self.truth, self.list, self.text, self.thing)(d)

    def thing(self, d):
        """Something by a name, or nothing."""
        r = self.rng.random()
        if r < 0.5 and self.names:
            return self.pick(*self.names)
        if r < 0.9 or d <= 0:
            return self.pick(*VARIABLES, "unknown", "none", "messages[0]", "messages[-1].content", "d.a", "d['b']",
                             "d.zz", "messages[2].tool_calls", "rows[0]", "loop.index" if self.loops else "n",
                             "()", "{}")
        return self.pick(f"{self.thing(d - 1)}.{self.pick('role', 'content', 'n', 'r', 'a', 'items')}",
                         f"{self.thing(d - 1)}[{self.any(d - 1)}]", f"({self.any(d - 1)})", self.condition(d - 1))

    def condition(self, d):
        otherwise = f" else {self.any(d - 1)}" if self.rng.random() < 0.8 else ""
        return f"({self.any(d - 1)} if {self.truth(d - 1)}{otherwise})"

    def text(self, d):
        if d <= 0 or self.rng.random() < 0.2:
            return self.pick("s", "words", "messages[1].content", "messages[0].role", "texts[0]",
                             self.quoted(self.pick(*STRINGS)))
        t, a = self.text, self.any
        return self.rng.choice([
            lambda: f"({t(d - 1)} ~ {a(d - 1)})",
            lambda: f"({t(d - 1)} + {t(d - 1)})",
            lambda: f"({a(d - 1)} | string)",
            lambda: f"{t(d - 1)} | {self.pick('trim', 'upper', 'lower', 'title', 'capitalize', 'string')}",
            lambda: f"({t(d - 1)} | replace({t(d - 1)}, {t(d - 1)}))",
            lambda: f"({a(d - 1)} | tojson{self.pick('', '(indent=2)', '(indent=4)', '(ensure_ascii=false)')})",
            lambda: f"({self.list(d - 1)} | join({t(d - 1)}))",
            lambda: f"({t(d - 1)} | indent({self.pick('2', '2, true', 'width=1')}))",
            lambda: f"({t(d - 1)}).{self.pick('strip', 'lstrip', 'rstrip')}({self.pick('', t(d - 1))})",
            lambda: f"({t(d - 1)}).{self.pick('upper', 'lower', 'title', 'capitalize')}()",
            lambda: f"({t(d - 1)}).replace({t(d - 1)}, {t(d - 1)})",
            lambda: f"({t(d - 1)}).join({self.list(d - 1)})",
            lambda: f"({t(d - 1)})[{self.slice(d - 1)}]",
            lambda: f"({t(d - 1)}).split({t(d - 1)})[{self.pick('0', '-1', '1')}]",
            lambda: f"({t(d - 1)} * {self.pick('0', '2', '-1', 'n')})",
            lambda: f"({a(d - 1)} | default({t(d - 1)}{self.pick('', ', true')}))",
            lambda: self.call(d - 1),
            lambda: self.condition(d),
        ])()

    def call(self, d):
        if not self.macros:
            return self.text(d)
        name, count = self.pick(*self.macros)
        given = [self.any(d - 1) for _ in range(self.rng.randint(0, count))]
        return f"{name}({', '.join(given)})"

    def number(self, d):
        if d <= 0 or self.rng.random() < 0.25:
            return self.pick("0", "1", "2", "-1", "7", "2.5", "1e3", "n", "big", "f", "true", "rows[1].n", "numbers[0]")
        m = self.number
        return self.rng.choice([
            lambda: f"({m(d - 1)} {self.pick('+', '-', '*', '/', '//', '%')} {m(d - 1)})",
            lambda: f"{m(d - 1)} {self.pick('+', '-', '*', '//', '%')} {m(d - 1)}",
            lambda: f"({self.pick('2', '3', '-2', '0.5')} ** {self.pick('0', '1', '2', '3', '-1')})",
            lambda: f"-{m(d - 1)}",
            lambda: f"({m(d - 1)} | {self.pick('abs', 'int', 'float')})",
            lambda: f"({self.any(d - 1)} | length)",
            lambda: f"({self.any(d - 1)} | int)",
            lambda: f"({self.text(d - 1)}).find({self.text(d - 1)})",
            lambda: f"({self.list(d - 1)} | {self.pick('first', 'last', 'count')})",
        ])()

    def truth(self, d):
        if d <= 0 or self.rng.random() < 0.15:
            return self.pick("yes", "no", "tools", "nil", "s", "empty", "unknown", "loop.last" if self.loops else "true",
                             "loop.first" if self.loops else "false")
        t, a = self.truth, self.any
        return self.rng.choice([
            lambda: f"{a(d - 1)} {self.pick('==', '!=')} {a(d - 1)}",
            lambda: f"({self.number(d - 1)} {self.pick('<', '>', '<=', '>=', '==')} {self.number(d - 1)})",
            lambda: f"({self.text(d - 1)} {self.pick('<', '>=', 'in', 'not in', '==')} {self.text(d - 1)})",
            lambda: f"({self.list(d - 1)} {self.pick('<', '==', '!=')} {self.list(d - 1)})",
            lambda: f"({self.number(d - 1)} < {self.number(d - 1)} <= {self.number(d - 1)})",
            lambda: f"{a(d - 1)} {self.pick('in', 'not in')} {self.list(d - 1)}",
            lambda: f"not {t(d - 1)}",
            lambda: f"({t(d - 1)} {self.pick('and', 'or')} {t(d - 1)})",
            lambda: f"{t(d - 1)} {self.pick('and', 'or')} {t(d - 1)} {self.pick('and', 'or')} {t(d - 1)}",
            lambda: f"({a(d - 1)} is {self.pick('', 'not ')}{self.test(d - 1)})",
            lambda: f"({self.text(d - 1)}).{self.pick('startswith', 'endswith')}({self.text(d - 1)})",
            lambda: f"({self.pick(*VARIABLES, 'unknown')} is {self.pick('defined', 'not defined', 'none', 'not none')})",
        ])()

    def test(self, d):
        return self.pick("defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer",
                         "float", "boolean", "true", "false", "odd", "even", "callable", f"divisibleby({self.pick('1', '2', '3')})",
                         f"eq({self.any(d)})", f"ne({self.any(d)})", f"in({self.list(d)})", f"gt({self.number(d)})",
                         f"equalto({self.any(d)})", f"sameas({self.pick('true', 'false', 'none')})")

    def list(self, d):
        if d <= 0 or self.rng.random() < 0.2:
            return self.pick("messages", "numbers", "texts", "empty", "rows", "d", "words", "d.k", "[1, 2, 3]", "(1, 'a')",
                             "['a', 'b']", "(range(4) | list)", "[]")
        l, a = self.list, self.any
        return self.rng.choice([
            lambda: f"[{', '.join(a(d - 1) for _ in range(self.rng.randint(0, 3)))}]",
            lambda: f"({a(d - 1)}, {a(d - 1)})",
            lambda: f"({l(d - 1)} + {l(d - 1)})",
            lambda: f"({l(d - 1)} * {self.pick('0', '2', 'n')})",
            lambda: f"({self.pick('2', '0')} * {l(d - 1)})",
            lambda: f"({l(d - 1)})[{self.slice(d - 1)}]",
            lambda: f"({l(d - 1)} | {self.pick('list', 'reverse | list', 'unique | list', 'sort', 'select | list', 'reject | list')})",
            lambda: f"({self.pick('rows', 'messages')} | map(attribute='{self.pick('r', 'n', 'role', 'zz')}') | list)",
            lambda: f"({l(d - 1)} | map('{self.pick('string', 'upper', 'length', 'trim', 'int')}') | list)",
            lambda: f"({l(d - 1)} | {self.pick('select', 'reject')}('{self.pick('string', 'number', 'defined', 'none', 'odd')}') | list)",
            lambda: f"({self.pick('rows', 'messages')} | {self.pick('selectattr', 'rejectattr')}('{self.pick('r', 'role')}', "
                    f"'{self.pick('equalto', 'eq', 'ne', 'in')}', {self.text(d - 1)}) | list)",
            lambda: f"({self.text(d - 1)}).split({self.pick('', self.text(d - 1))})",
            lambda: f"({self.dict(d - 1)} | {self.pick('items', 'dictsort')} | list)",
            lambda: f"({self.dict(d - 1)}).{self.pick('keys', 'values', 'items')}() | list",
            lambda: self.dict(d - 1),
        ])()

    def dict(self, d):
        if d <= 0 or self.rng.random() < 0.3:
            return self.pick("d", "messages[0]", "{}", "{'a': 1}", "dict(x=1)")
        def name():
            return self.quoted(self.pick(*STRINGS)) if self.rng.random() < 0.8 else self.number(0)
        return "{" + ", ".join(f"{name()}: {self.any(d - 1)}" for _ in range(self.rng.randint(0, 3))) + "}"

    def slice(self, d):
        def bound():
            return self.pick("", "0", "1", "2", "-1", "-2", "9", "n")
        if self.rng.random() < 0.3:
            return bound() or "0"
        return f"{bound()}:{bound()}" + self.pick("", "", ":", f":{self.pick('2', '-1', '-2')}")

    # ---- statements

    def space(self):
        return self.pick("", "", "\n", " ", "\n  ", "text", "a\n\n b")

    def tag(self, inside):
        return "{%" + self.pick("", "", "", "-", "+") + f" {inside} " + self.pick("", "", "", "-") + "%}"

    def body(self, d):
        return "".join(self.space() + self.statement(d) for _ in range(self.rng.randint(1, 3))) + self.space()

    def scoped(self, d, *names):
        kept = len(self.names)
        self.names += names
        out = self.body(d)
        del self.names[kept:]
        return out

    def statement(self, d):
        if d <= 0 or self.rng.random() < 0.35:
            left, right = self.pick("", "", "-"), self.pick("", "", "-")
            return "{{" + left + " " + self.any(3) + " " + right + "}}"
        return self.rng.choice([self.if_, self.for_, self.for_, self.set_, self.set_, self.set_block, self.filter_block,
                                self.comment, self.namespace])(d)

    def if_(self, d):
        out = self.tag("if " + self.truth(3)) + self.scoped(d - 1)
        if self.rng.random() < 0.3:
            out += self.tag("elif " + self.truth(2)) + self.scoped(d - 1)
        if self.rng.random() < 0.5:
            out += self.tag("else") + self.scoped(d - 1)
        return out + self.tag("endif")

    def for_(self, d):
        name = self.pick("x", "y", "m")
        over, names, target = self.list(2), [name], name
        if self.rng.random() < 0.2:
            over, names, target = self.dict(2) + ".items()", ["k", "v"], "k, v"
        uses = self.rng.random() < 0.3
        keep = self.names + names
        kept, self.names = self.names, keep
        loops, self.loops = self.loops, 0  # the filter does not see its own loop
        only = f" if {self.truth(2)}" if self.rng.random() < 0.35 else ""
        if uses:
            only = " if seen.n < 2"
        self.names, self.loops = kept, loops + 1
        inside = ""
        if uses:
            inside += "{% set seen.n = seen.n + 1 %}"
        if self.rng.random() < 0.5:
            inside += "{{ loop." + self.pick("index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem",
                                             "nextitem", "cycle('a', 'b')") + " }}"
        inside += self.scoped(d - 1, *names)
        if self.rng.random() < 0.2:
            inside += self.tag("if " + self.truth(1)) + self.tag(self.pick("break", "continue")) + self.tag("endif")
        self.loops = loops
        otherwise = self.tag("else") + self.scoped(d - 1) if self.rng.random() < 0.2 else ""
        before = "{% set seen = namespace(n=0) %}" if uses else ""
        return before + self.tag(f"for {target} in {over}{only}") + inside + otherwise + self.tag("endfor")

    def set_(self, d):
        name = self.pick("p", "q")
        value = self.any(3)
        self.names.append(name)
        return self.tag(f"set {name} = {value}")

    def set_block(self, d):
        filters = self.pick("", "", " | trim", " | upper")
        out = self.tag("set r" + filters) + self.scoped(d - 1) + self.tag("endset")
        self.names.append("r")
        return out

    def filter_block(self, d):
        return self.tag("filter " + self.pick("trim", "upper", "replace('a', 'b')")) + self.scoped(d - 1) + self.tag("endfilter")

    def comment(self, d):
        return self.pick("{# x #}", "{#- x -#}", "{% raw %}{{ x }}{% endraw %}")

    def namespace(self, d):
        return (f"{{% set ns = namespace(a={self.any(2)}) %}}" + self.tag(f"set ns.a = {self.any(2)}") + "{{ ns.a }}")

    def template(self):
        if self.rng.random() < 0.4:
            return "{{ " + self.any(4) + " }}"
        out = ""
        if self.rng.random() < 0.4:
            parameters = self.pick(["a"], ["a", "b='x'"], ["a=none", "b=2"])
            kept, self.names = self.names, ["a"]
            out += self.tag(f"macro mac({', '.join(parameters)})") + self.body(1) + self.tag("endmacro")
            self.names = kept
            self.macros.append(("mac", len(parameters)))
        return out + self.body(3)
