#!/usr/bin/env python3
"""Writes the golden files of the tokenizer tests: a small tokenizer of each kind, trained here with
the normalizer, pre-tokenizer and decoder of its model family, and the ids that Hugging Face
`tokenizers` gives for every text of the corpus.

    make_golden.py [--check] [--llama-cpp]

needs the Python package tokenizers (0.23 wrote the files here); --llama-cpp also compares the ids of
byte-level tokenizers with llama.cpp's, by way of a GGUF file (gguf, llama-cpp-python). --check
compares with the files instead of writing them.

Files: corpus.json, the texts; <kind>.tokenizer.json; <kind>.ids.json with, for each text, the ids
with special tokens recognised ("special"), those without where they differ ("plain"), and the text
that decoding gives where it is another ("decoded").
"""
import argparse
import json
import pathlib
import sys
import tempfile

try:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
    from tokenizers import pre_tokenizers, processors, trainers
except ImportError:
    print("skipped: the Python package tokenizers is not installed")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
VOCAB = 480

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SEED = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+")
# One after the other: DeepSeek V3's, and Hunyuan's after it.
DEEPSEEK3 = (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
             r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Letters that have a case, as DeepSeek V2's tokenizer.json has them.
CASED = ("A-Za-z"
         "\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
         "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
         "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf"
         "\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d"
         "\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
         "\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
         "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
         "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
         "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
         "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
         "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")
# One after the other, and then single digits.
DEEPSEEK2 = ("[\r\n]", r"\s?[" + CASED + "]+", r"\s?[!-/:-~" + "\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$",
             "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+")
# As \p{Han}+ before a GPT-4o's words without Han; Kimi's own file says [...&&[^\p{Han}]].
UPPER, LOWER = (r"(?:(?!\p{Han})[%s\p{Lm}\p{Lo}\p{M}])" % case for case in (r"\p{Lu}\p{Lt}", r"\p{Ll}"))
KIMI = (r"\p{Han}+" + "".join(
    rf"|[^\r\n\p{{L}}\p{{N}}]?{word}(?i:'s|'t|'re|'ve|'m|'ll|'d)?" for word in (UPPER + "*" + LOWER + "+", UPPER + "+" + LOWER + "*"))
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# Prose and code to learn merges from.
TRAINING = [
    "The keys and values of a chunk depend on the chunks before it, so they are not what a prefill "
    "of the whole prompt would give. Recomputing a few of the rows is enough to bring them back.",
    "It's what we've said: they'll see that I'm right, you're not, and he'd know. DON'T SHOUT, "
    "WE'RE LISTENING; IT'S 12:34 on 2024-05-17, and 1234567 of 89 were 3.14159.",
    "for (int i = 0; i < n; ++i) {\n    sum += values[i] * weights[i];\n}\n\nreturn sum / n;\n",
    "def main(argv):\n\tif len(argv) > 1:\n\t\tprint('hello, world')\n\treturn 0\n",
    "Größe, naïve café, coöperate; Ελληνικά κείμενα; русский текст о том и о сём; 日本語の文章です。"
    "中文句子也在这里。한국어 문장도 있습니다. नमस्ते दुनिया। สวัสดีชาวโลก مرحبا بالعالم שלום עולם",
] * 3

CORPUS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n ", "\n \n", "a", " a", "a ", "  a  ",
    "Hello, world!", "Hello  world", "hello world ", "The quick brown fox jumps over the lazy dog.",
    "It's we've THEY'LL I'M you're he'd Don't CAN'T 's 'S ' s", "it\u2019s curly, they\u2019re too",
    "'\u017f is a long s; \u212a is a kelvin sign",
    "0", "12", "123", "1234", "12345678901234567890", "3.14159 -1e-10 1,000,000 0x1F", "١٢٣٤ ½ ²³ Ⅷ ①②",
    "a1b22c333d4444", "x=1;y=22;z=333", "version 1.2.3-rc.4+build.5",
    "for (int i = 0; i < 10; ++i) {\n    sum += a[i];\n}\n", "def f(x):\n\treturn x ** 2  # square\n\n\n",
    "if(a&&b||c){d=~e^f;}", "<html><body class=\"x\">&amp;</body></html>", "SELECT * FROM t WHERE a<>'b';",
    "    four\n        eight\n\t\ttwo tabs\n \t mixed", "trailing   \n   leading", "a\n\n\n\nb", "a \n \n b",
    "line\r\nline\r\n\r\nline\rline", "\u2028line\u2029paragraph\u0085next",
    "a\u00a0b\u3000c\u2003d\u200be\u180ef\ufeffg\u1680h", "\u00a0\u00a0 \u3000\u3000",
    "!!! ??? ... --- ___ === *** ///\n", "(((nested [brackets {here}])))", "a/b/c\\d\\e //comment\n/",
    "$100 €50 £20 ¥1000 + - × ÷ = ≠ ≤ ≥ ∞ ∑ ∫", "“quotes” ‘single’ «guillemets» —dash– …",
    "café naïve Größe Ångström", "cafe\u0301 nai\u0308ve A\u030angstro\u0308m \u212b",
    "e\u0301\u0323 e\u0323\u0301 \u0301\u0301 q\u0307\u0323", "\u1100\u1161\u11a8 각 \uac00\u11a8",
    "ﬁ ﬂ Ⅸ ℌ ｆｕｌｌ ①", "İstanbul ıI ǅ ǆ ß ẞ ſ",
    "日本語の文章です。", "中文，没有空格的句子。", "한국어 문장", "日本語English混ざり123", "ﾊﾝｶｸ カタカナ ひらがな",
    "Русский текст, ещё Один.", "Ελληνικά ΚΕΊΜΕΝΑ ΣΊΣΥΦΟΣ", "مرحبا بالعالم ١٢٣", "שלום עולם", "नमस्ते दुनिया। क्षत्रिय",
    "สวัสดีชาวโลก", "ภาษาไทย ๑๒๓", "tiếng Việt có dấu", "ქართული ენა", "Հայերեն", "አማርኛ",
    "😀", "😀😃😄", "I ❤️ you 👍🏽!", "👩‍👩‍👧‍👦 family 🏳️‍🌈", "🇩🇪🇫🇷🇯🇵 flags", "👨🏿‍💻 codes 🧑‍🚀", "a😀b c 😀d",
    "\U0001d4d7\U0001d4ee\U0001d4f5\U0001d4f5\U0001d4f8 math", "\U00020000\U0002a6d6 rare \U00010348",
    "\u0000", "a\u0000b", "\u0001\u0002\u001f\u007f", "\x1b[31mred\x1b[0m", "\u200d\u200c\u2060", "\ufffd \ufffe \U0010ffff \ue000",
    "a\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308 zalgo", "\u202ertl\u202c \u2066iso\u2069",
    "pneumonoultramicroscopicsilicovolcanoconiosis", "a" * 700, "ab" * 300, "0" * 400, "=" * 300, " " * 300,
    "\n" * 150, "\t " * 100, "日" * 150, "😀" * 60, "Aa" * 150, "A" * 200 + "a", "x" * 100 + " " + "y" * 100,
    "https://example.org/path/to?query=1&other=%20x#frag", "user.name+tag@example.co.uk", "C:\\Users\\x\\y.txt",
    "snake_case camelCase PascalCase SCREAMING_CASE kebab-case", "don't.stop,now;ok:go!a?b",
    "<s>", "</s>", "<s>the</s> the <s> the", "<unk> <pad>", "<0x41> <0x0A> <0xZZ>", "<|endoftext|>", "a<|endoftext|>b",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", "<|begin_of_text|><|eot_id|> x <|eot_id|>",
    "<|endoftext", "<|endoftext|><|endoftext|>", " <|endoftext|> ", "\n<|im_end|>\n\n", "<tool_call>{}</tool_call>",
    "[INST] hi [/INST]", "[INST][INST]", "the word thew MASK[MASK] [MASK]s  [MASK]  x", "a   <rs>   b", "▁", "▁▁the ▁", "a▁b", "Ġ", "ĠĠa Ċ",
    "ĊĠ", "<|", "|>", "<", "the theThe THE tHe", "thethethe the the  the   the", "of of of", "  the", "\tthe", "\nthe",
]


def special(text, **kw):
    return AddedToken(text, special=True, normalized=False, **kw)


def byte_level(pre, *, normalizer=None, specials, extra=(), ignore_merges=False, bos=None):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TRAINING, trainers.BpeTrainer(
        vocab_size=VOCAB, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens([special(s) for s in specials])
    t.add_tokens(list(extra))
    if bos:
        template = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, t.token_to_id(bos))])
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return t


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def then_bytes(*steps):
    return pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def sentencepiece(normalizer, pre, decoder, *, specials=("<unk>", "<s>", "</s>"), extra=(), missing=(), bos="<s>"):
    """Characters and byte tokens: trained on words, then put in the order of SentencePiece's files."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.train_from_iterator(TRAINING, trainers.BpeTrainer(vocab_size=VOCAB - 259, limit_alphabet=110, show_progress=False))
    trained = json.loads(t.to_str())["model"]
    order = sorted(trained["vocab"], key=trained["vocab"].get)
    names = [*specials[:3], *[f"<0x{b:02X}>" for b in range(256) if b not in missing], *order]
    t = Tokenizer(models.BPE(vocab={n: i for i, n in enumerate(names)}, merges=[tuple(m) for m in trained["merges"]],
                             unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.decoder = decoder
    t.add_special_tokens([special(s) for s in specials])
    t.add_tokens(list(extra))
    if bos:
        t.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, t.token_to_id(bos))])
    return t


def spaces_decoder(strip):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def kinds():
    llama_normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    chatml = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    return {
        "gpt2": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), specials=["<|endoftext|>"]),
        "llama3": byte_level(then_bytes(split(LLAMA3)), ignore_merges=True, bos="<|begin_of_text|>",
                             specials=["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]),
        "qwen2": byte_level(then_bytes(split(QWEN2)), normalizer=normalizers.NFC(), specials=chatml,
                            extra=[AddedToken("<tool_call>", normalized=False, special=False),
                                   AddedToken("</tool_call>", normalized=False, special=False)]),
        "qwen35": byte_level(then_bytes(split(QWEN35)), normalizer=normalizers.NFC(), specials=chatml),
        "smollm": byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                      pre_tokenizers.ByteLevel(add_prefix_space=False)]), specials=chatml),
        "tekken": byte_level(then_bytes(split(TEKKEN)), ignore_merges=True, bos="<s>",
                             specials=["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]),
        "gpt4o": byte_level(then_bytes(split(GPT4O)), specials=["<|endoftext|>", "<|end|>"]),
        "seed": byte_level(then_bytes(split(SEED)), specials=["<seed:bos>", "<seed:eos>"]),
        "deepseek3": byte_level(then_bytes(*map(split, DEEPSEEK3)), specials=["<|begin|>", "<|end|>"]),
        "deepseek2": byte_level(then_bytes(*map(split, DEEPSEEK2), pre_tokenizers.Digits(individual_digits=True)),
                                specials=["<|begin|>", "<|end|>"]),
        "kimi": byte_level(then_bytes(split(KIMI)), specials=["[BOS]", "[EOS]"]),
        "llama2": sentencepiece(llama_normalizer, None, spaces_decoder(True)),
        "mistral": sentencepiece(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), spaces_decoder(True),
                                 extra=[AddedToken("[INST]", normalized=False), AddedToken("[/INST]", normalized=False)]),
        "gemma": sentencepiece(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
                               spaces_decoder(False), extra=[AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False),
                                                             AddedToken("▁▁▁▁", normalized=False)]),
        "phi3": sentencepiece(llama_normalizer, None, spaces_decoder(True),
                              specials=("<unk>", "<s>", "</s>", "<|endoftext|>"),
                              extra=[AddedToken("<|im_end|>", special=True, normalized=False, rstrip=True),
                                     AddedToken("<|im_start|>", special=True, normalized=False, rstrip=True)]),
        # What no family does, all in one: every behaviour, flag and fallback that is read.
        "behaviours": byte_level(
            then_bytes(pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Punctuation("contiguous"),
                       split(r"[A-Z]+", "merged_with_next"), pre_tokenizers.Split("e", "merged_with_previous"),
                       split(r"[^\n]+", "isolated", True)),
            normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"x+"), "x"), normalizers.Replace("THE", "the")]),
            specials=["<|endoftext|>"],
            extra=[AddedToken("[MASK]", lstrip=True, normalized=False), AddedToken("<rs>", rstrip=True, normalized=False),
                   AddedToken("word", single_word=True, normalized=False), AddedToken("xx</s>", normalized=True),
                   AddedToken("ﬁ", normalized=True)]),
        # Byte tokens are missing: unknown characters, joined or not.
        "unknown": sentencepiece(llama_normalizer, pre_tokenizers.Metaspace(prepend_scheme="always", split=True), spaces_decoder(True),
                                 missing=set(range(0x80, 0x100)), bos=None),
    }


PRE = {"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen2": "qwen2", "qwen35": "qwen35", "smollm": "smollm", "tekken": "tekken", "gpt4o": "gpt-4o",
       "seed": "seed-coder", "deepseek3": "hunyuan-dense", "deepseek2": "deepseek-llm", "kimi": "kimi-k2"}


def ids_of(t):
    cases = []
    for text in CORPUS:
        t.encode_special_tokens = False
        case = {"special": t.encode(text, add_special_tokens=False).ids}
        t.encode_special_tokens = True
        plain = t.encode(text, add_special_tokens=False).ids
        if plain != case["special"]:
            case["plain"] = plain
        decoded = t.decode(case["special"], skip_special_tokens=False)
        if decoded != text:
            case["decoded"] = decoded
        cases.append(case)
    t.encode_special_tokens = False
    return cases


def compare_with_llama_cpp(kind, t, cases):
    import gguf
    import llama_cpp
    data = json.loads(t.to_str())
    vocab = dict(data["model"]["vocab"])
    added = {a["content"]: a for a in data["added_tokens"]}
    for a in data["added_tokens"]:
        vocab[a["content"]] = a["id"]
    names = sorted(vocab, key=vocab.get)
    types = [1 if n not in added else 3 if added[n]["special"] else 4 for n in names]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/{kind}.gguf"
        w = gguf.GGUFWriter(path, "llama")
        w.add_block_count(1), w.add_context_length(64), w.add_embedding_length(32), w.add_feed_forward_length(32)
        w.add_head_count(1), w.add_layer_norm_rms_eps(1e-5)
        w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre(PRE[kind])
        w.add_token_list(names), w.add_token_types(types), w.add_token_merges([" ".join(m) for m in data["model"]["merges"]])
        w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
        model = llama_cpp.Llama(path, vocab_only=True, verbose=False)
        for text, case in zip(CORPUS, cases):
            got = model.tokenize(text.encode(), add_bos=False, special=True)
            if got != case["special"]:
                print(f"{kind}: llama.cpp differs on {text[:40]!r}: {got[:12]} for {case['special'][:12]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--llama-cpp", action="store_true")
    args = parser.parse_args()
    files = {"corpus.json": json.dumps(CORPUS, ensure_ascii=True, indent=0)}
    for kind, t in kinds().items():
        if args.check:  # training need not be the same everywhere; what it gave must tokenize the same
            t = Tokenizer.from_file(str(HERE / f"{kind}.tokenizer.json"))
        cases = ids_of(t)
        if args.llama_cpp and kind in PRE:
            compare_with_llama_cpp(kind, t, cases)
        if not args.check:
            files[f"{kind}.tokenizer.json"] = t.to_str()
        files[f"{kind}.ids.json"] = "[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]"
    wrong = 0
    for name, text in files.items():
        if not args.check:
            (HERE / name).write_text(text + "\n", encoding="utf-8")
        elif (HERE / name).read_text(encoding="utf-8") != text + "\n":
            print(f"{name} is another now")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
