#!/usr/bin/env python3
"""Checks that comments, documents and commit subjects are plain technical English.

usage: tools/prose.py [PATH...]    checks tracked files (by default all) and the last 50 commit subjects
       tools/prose.py --self-test  checks this script on examples

Finds questions in comments, terms with a common name, sentences of more than 40 words in README.md and docs/*.md, and
commit subjects of more than 72 characters. Quotes, code spans and URLs are exempt. Exits with status 1 on a finding.
"""
import ast
import collections
import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_WORDS, MAX_SUBJECT, COMMITS = 40, 72, 50
TERMS = [  # a pattern, and what to write instead
    (r"second looks?|looks? again|looked at again", "second pass"),
    (r"fetch(es|ed|ing)? ahead", "prefetch"),
    (r"past the caches?", "non-temporal (streaming) store"),
    (r"rows?( that)?( lies?| are| stand)? side by side|planar(?![-_.])", "channels-first"),
    (r"given moments|moments (that )?(are|is|were) given", "precomputed statistics"),
    (r"rows? far from (0|zero)", "rows with a large mean"),
    (r"extreme rows?", "out-of-range rows"),
    (r"(begins?|start) (at|from) (an )?anchors?", "biased accumulator"),
    (r"maps? of (a|the) rows?|rows?( that)?( is| are)? mapped|a row's map", "normalise, or the dx step"),
    ("by turns|turn by turn", "pipeline stage, or alternately"),
    (r"(document|page|README|\.md) (tells?|says?)", "document, report, state"),
    (r"mend(s|ed|ing)?", "fix"),
]
BANNED = [(re.compile(r"(?<![-_.\w])(?:" + pattern.replace(" ", " +") + r")(?![-_]?\w)", re.I), instead)
          for pattern, instead in TERMS]
EXEMPT = re.compile(r"(?ms)^ *```.*?^ *```|https?://\S+|" + "|".join(  # quotes end with their paragraph
    rf"{begin}(?:[^{end}\n]|\n(?!\s*\n))*{end}" for begin, end in ("``", '""', "“”", (r"(?<!\w)'", "'"))))
C_TOKEN = re.compile(
    r'R"([^()\\\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|(?P<comment>//[^\n]*|/\*.*?\*/)', re.S)
HASH_TOKEN = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|(?<!\S)(?P<comment>#[^\n]*)", re.S)
WORD = re.compile(r"[(\[*_]*(?:a|I|[A-Za-z][A-Za-z'’-]+)[)\]*_.,;:!?]*$|A$")


def tokens(pattern, text):
    for match in pattern.finditer(text):
        if match.group("comment"):
            yield text.count("\n", 0, match.start()) + 1, match.group("comment")


def python_comments(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            yield node.body[0].lineno, node.body[0].value.value


def merged(comments):
    """Joins comments on successive lines, so that a term may be broken over them."""
    blocks = []
    for number, comment in sorted(comments):
        text = re.sub(r"(?m)^\s*(?://+|#+)", "", comment)
        if blocks and number == blocks[-1][0] + blocks[-1][1].count("\n") + 1:
            blocks[-1][1] += "\n" + text
        else:
            blocks.append([number, text])
    return blocks


def comments_of(name, text):
    first = text.partition("\n")[0]
    if name.endswith((".c", ".cpp", ".h", ".hpp", ".inc", ".js")):
        return tokens(C_TOKEN, text)
    if name.endswith(".py") or re.match("#!.*python", first):
        return python_comments(text)
    shell = name.endswith((".cmake", ".sh", "CMakeLists.txt", "Makefile")) or first.startswith("#!")
    return tokens(HASH_TOKEN, text) if shell else []


def blank(text):  # replaces exempt text by a word of code; keeps its lines
    return EXEMPT.sub(lambda match: "x_" + "\n" * match.group().count("\n"), text)


def words(sentence):  # a formula, which is a run of other tokens than plain words, counts once
    plain = [bool(WORD.match(word)) for word in sentence.split()]
    return sum(word or index == 0 or plain[index - 1] for index, word in enumerate(plain))


def long_sentences(text):  # code blocks, tables and headings become empty lines
    text = re.sub(r"(?ms)^ *```.*?^ *```|^\|[^\n]*$|^    [^\n]*$|^#[^\n]*$", lambda m: "\n" * m.group().count("\n"), text)
    text = blank(re.sub(r"!?\[([^\]]*)\]\([^)]*\)", lambda m: m.group(1) + "\n" * m.group(0).count("\n"), text))
    for paragraph in re.finditer(r"(?s)\S.*?(?=\n\s*\n|\n\s*(?:[-*]|\d+\.) |\Z)", text):
        for sentence in re.finditer(r"(?s)\S.*?(?:[.!?][)*_]*(?=\s)|\Z)", paragraph.group()):
            if (count := words(sentence.group())) > MAX_WORDS:
                yield text.count("\n", 0, paragraph.start() + sentence.start()) + 1, count


def findings(name, text):
    document = name.endswith(".md")
    for number, comment in [(1, text)] if document else merged(comments_of(name, text)):
        prose = blank(comment)
        for pattern, instead in BANNED:
            for match in pattern.finditer(re.sub(r"\s", " ", prose)):
                yield number + prose.count("\n", 0, match.start()), f"'{match.group()}': write {instead}"
        for match in re.finditer(r"\?", "" if document else prose):
            yield number + prose.count("\n", 0, match.start()), "a question in a comment: state what holds"
    if name == "README.md" or re.fullmatch(r"docs/[^/]*\.md", name):
        for number, count in long_sentences(text):
            yield number, f"a sentence of {count} words: write several of at most {MAX_WORDS}, better 25"


def self_test():
    def found(name, text):
        return [number for number, _ in sorted(findings(name, text))]

    assert found("a.cpp", 'int a = b ? 1 : 0; // why?\nf("//?"); /* x\n?*/ // see https://a.b/?c\n') == [1, 3]
    assert found("a.hpp", "// a second\n// look\nauto s = R\"(// mend?)\"; int n = 1'000; // mended\n") == [1, 3]
    assert found("a.py", '"""Planar?"""\nx = "#?"  # what is `?`\n') == [1, 1]
    assert found("CMakeLists.txt", 'set(A "#?")  # on?\n') == [1]
    assert found("a.md", "`planar` and planar_rows, recommended, a planar\ntensor?\n") == [1]
    assert found("docs/a.md", "| " + "no " * 50 + "\n\n" + "Words " * 40 + "\n\n- Short.\n- " + "word " * 41) == [6]
    assert found("README.md", "Sum " + "x + b * " * 50 + "is it. " + "Word " * 20 + "ends. " + "Word " * 20) == []


def main(paths):
    if not (ROOT / ".git").exists():  # a source archive
        return 0
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    counts = collections.Counter()
    for name in git("ls-files", "-z", "--", *paths).split("\0"):
        text = path.read_text(errors="replace") if (path := ROOT / name).is_file() else ""
        for number, what in sorted(findings(name, text)):
            print(f"{name}:{number}: {what}")
            counts["/".join(name.split("/")[:-1][:2]) or "."] += 1
    for line in git("log", f"-{COMMITS}", "--format=%h %s").splitlines() if not paths else []:
        commit, _, subject = line.partition(" ")
        if len(subject) > MAX_SUBJECT:
            print(f"commit {commit}: a subject of {len(subject)} characters: write at most {MAX_SUBJECT}")
            counts["commits"] += 1
    print("prose:", ", ".join(f"{folder} {count}" for folder, count in sorted(counts.items())) or "nothing found")
    return int(bool(counts))


if __name__ == "__main__":
    sys.exit(self_test() if sys.argv[1:] == ["--self-test"] else main(sys.argv[1:]))
