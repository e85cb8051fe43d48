"""names.txt and the families of constants: C names in the library's messages, and their names in each
language."""

import errors

LANGUAGES = ("python", "java", "go")


def functions():
    """{"blend_layerwise_fetch_kv": {"python": "Layerwise.fetch", ...}}"""
    rows = [line.split() for line in (errors.COMMON / "names.txt").read_text().splitlines()
            if line and not line.startswith("#")]
    return {row[0]: dict(zip(LANGUAGES, row[1:])) for row in rows}


def table(meaning, language, constant, family, error):
    """[(name in C, name in the language)]; constant(enum, name), family(enum), error(errors.Error)."""
    names = {name: of[language] for name, of in functions().items()}
    for enum, constants in meaning.enums():
        names[f"BLEND_{enum.prefix}_"] = family(enum)
        names |= {f"BLEND_{enum.prefix}_{name}": constant(enum, name) for name, _, _ in constants}
    names |= {one.constant: error(one) for one in errors.table()}
    return sorted(names.items())
