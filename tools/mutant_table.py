"""The table of mutations, tests/mutants.json: read, written in its one form, and checked; for tools/mutants and tools/lint.

An object keyed by the file that is changed, in the order of names; each value is a list of mutations, one a line:
["name", "how", "find", "replace", "test", "why"]. CONTRIBUTING.md says what they mean.
"""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "mutants.json"
FIELDS = ("name", "how", "find", "replace", "test", "why")
PLAIN = "quick"                                      # the tree of mutations that name none
TREES = (PLAIN, "sanitize", "thread", "python", "libtorch", "aarch64")
CPU_FLAGS = ("avx512bw", "avx512_bf16")              # as /proc/cpuinfo names them


def collected(pairs):
    """{file: its rows}; a file that occurs twice keeps both lists."""
    files = {}
    for file, rows in pairs:
        if not isinstance(rows, list):
            raise ValueError(f"{file}: has {type(rows).__name__}, should have a list of mutations")
        files.setdefault(file, []).extend(rows)
    return files


def mutation_of(file, row):
    if not isinstance(row, list) or len(row) != len(FIELDS) or not all(isinstance(field, str) for field in row):
        raise ValueError(f"{file}: a mutation is [{', '.join(FIELDS)}], {len(FIELDS)} strings; this one is "
                         + json.dumps(row, ensure_ascii=False))
    mutation = {"file": file, **dict(zip(FIELDS, row))}
    words = mutation.pop("how").split()
    trees = [word for word in words if word in TREES[1:]]
    flags = [word for word in words if word in CPU_FLAGS]
    if len(trees) > 1 or len(flags) > 1 or {*words} - {*trees, *flags, "long"}:
        raise ValueError(f"{file}: how {mutation['name']} is tried is \"{row[1]}\", should be some of \"long\", "
                         f"one of {', '.join(TREES[1:])}, one of {', '.join(CPU_FLAGS)}")
    return {**mutation, "tree": trees[0] if trees else PLAIN, "cpu": flags[0] if flags else None,
            "long": "long" in words}


def read(text=None):
    """The mutations, in the table's order. ValueError says what is wrong with it."""
    try:
        files = json.loads(TABLE.read_text(encoding="utf-8") if text is None else text, object_pairs_hook=collected)
        if not isinstance(files, dict):
            raise ValueError(f"has {type(files).__name__} at its top, should have an object of files")
        return [mutation_of(file, row) for file, rows in files.items() for row in rows]
    except ValueError as error:
        raise ValueError(f"{TABLE.relative_to(ROOT)}: {error}") from error


def row_of(mutation):
    words = [None if mutation["tree"] == PLAIN else mutation["tree"], mutation["cpu"], "long" if mutation["long"] else None]
    how = " ".join(word for word in words if word)
    return json.dumps([how if field == "how" else mutation[field] for field in FIELDS], ensure_ascii=False)


def formed(mutations):
    """The table's text: files in order, one mutation a line, those of a file in the order that they have."""
    files = {}
    for mutation in mutations:
        files.setdefault(mutation["file"], []).append("    " + row_of(mutation))
    return "{\n" + ",\n".join(f"  {json.dumps(file, ensure_ascii=False)}: [\n" + ",\n".join(files[file]) + "\n  ]"
                              for file in sorted(files)) + "\n}\n"


def repeated(mutations):
    known = [mutation["name"] for mutation in mutations]
    return sorted({name for name in known if known.count(name) > 1})


def lacks_cpu(mutation):
    """Can this CPU not run what is changed?"""
    cpu = pathlib.Path("/proc/cpuinfo")
    return mutation["cpu"] is not None and not (cpu.is_file() and mutation["cpu"] in cpu.read_text().split())


def why_not_applicable(mutation):
    path = ROOT / mutation["file"]
    if not path.is_file():
        return f"{mutation['file']} does not exist"
    times = path.read_text(encoding="utf-8").count(mutation["find"]) if mutation["find"] else 0
    if times != 1:
        return f"`find` occurs {times} times in {mutation['file']}, not once"
    return "changes nothing" if mutation["find"] == mutation["replace"] else None


def check(fix):
    """Says what is wrong with the table, and whether nothing is; fix: its form is mended first."""
    text = TABLE.read_text(encoding="utf-8")
    try:
        mutations = read(text)
    except ValueError as error:
        print(error)
        return False
    problems = [f"more than one mutation is named {name}" for name in repeated(mutations)]
    problems += [f"{mutation['name']}: {reason}" for mutation in mutations if (reason := why_not_applicable(mutation))]
    if fix and text != formed(mutations):
        TABLE.write_text(formed(mutations), encoding="utf-8")
    elif text != formed(mutations):
        problems.append("is not in its form: tools/mutants --format")
    for problem in problems:
        print(f"{TABLE.relative_to(ROOT)}: {problem}")
    return not problems
