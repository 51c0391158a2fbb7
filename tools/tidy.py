"""clang-tidy on sources of the project, for tools/lint.

Most of its time goes into headers: those of CLI11 and nlohmann-json are as much work for one small file as for forty. So
sources that are compiled alike are checked as one, written behind each other into build/lint/. Those that cannot be, since
both have a name for themselves, are told apart by compiling them first. The verdict on a file is kept until the file, how
it is compiled, a header of the project that it includes, as ninja knows from the compiler, or .clang-tidy changes.
"""
import concurrent.futures
import functools
import hashlib
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
KEPT = BUILD / "lint"
JOBS = os.cpu_count() or 1
ALONE = BUILD.parent / "src" / "targets"  # each sets what Highway's headers mean
# How far the analyzer follows calls into one another; with the headers of CLI11 and nlohmann-json inside, far is most of
# the time (docs/measured.md, 2026-11-24).
SHALLOW = tuple(f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", "mode=shallow"))


def tool(name):
    """Version 14, Debian 12's: another version formats differently and warns of other things."""
    found = shutil.which(f"{name}-14")
    if not found:
        sys.exit(f"tools/lint: {name}-14 is missing (tools/setup.sh check)")
    return found


@functools.lru_cache(maxsize=None)
def compiler_headers():
    """Where GCC keeps quadmath.h, searched last: clang's own come first."""
    result = subprocess.run(["c++", "-print-file-name=include"], capture_output=True, text=True)
    folder = result.stdout.strip()
    return (f"-idirafter{folder}",) if os.path.isabs(folder) else ()


def included():
    """{object file: the project's files that it was compiled from}; those that are not up to date are left out."""
    known, files = {}, None
    listing = subprocess.run(["ninja", "-C", str(BUILD), "-t", "deps"], capture_output=True, text=True).stdout
    for line in listing.splitlines():
        if line.startswith("    "):
            path = pathlib.Path(os.path.normpath(BUILD / line.strip()))
            if files is not None and path.is_relative_to(ROOT) and not path.is_relative_to(BUILD):
                files.append(path)
        elif ": #deps " in line:
            files = known.setdefault(line.split(": #deps ")[0], []) if line.endswith("(VALID)") else None
    return known


def verdict_keys(entries, headers, deep):
    """{source: what its verdict depends on}"""
    known, keys = included(), {}
    for path, entry in entries.items():
        key = hashlib.sha256((ROOT / ".clang-tidy").read_bytes() + (b"deep" if deep else b"shallow"))
        key.update(entry["command"].replace(" -Werror", "").encode())
        output = entry["command"].partition(" -o ")[2].split(" ")[0]
        for part in sorted({path, *known.get(output, headers)}):
            key.update(str(part).encode() + hashlib.sha256(part.read_bytes()).digest())
        keys[path] = key.hexdigest()
    return keys


def flags_of(entry):
    """How it is compiled: no compiler, no file, no output, nothing that tells how to optimise."""
    words = shlex.split(entry["command"])[1:]
    output = words.index("-o")
    return tuple(word for word in words[:output] + words[output + 2:]
                 if word not in ("-c", "-Werror", entry["file"]) and not re.fullmatch("-O[0-3]|-mmem(set|cpy)-strategy=.*", word))


class Bundle:
    """Sources written behind each other; what is said of a line is said of the line that it was."""

    def __init__(self, path, files):
        self.path, self.files, self.starts = path, files, []
        text, lines = [], 0
        for i, file in enumerate(files):
            # A macro: includes that are repeated after it are no mistake.
            lines += 1
            self.starts.append(lines)
            source = self.resolved(file)
            text.append(f"#define EVENORM_SOURCE_{i}\n{source}")
            lines += source.count("\n")
        path.write_text("".join(text), encoding="utf-8")

    @staticmethod
    def resolved(file):
        """Its text; headers beside it are named by their whole path."""
        def whole(match):
            beside = file.parent / match[2]
            return f'{match[1]}"{beside}"' if beside.exists() else match[0]
        return re.sub(r'^(#include )"([^"]+)"', whole, file.read_text(encoding="utf-8").rstrip("\n") + "\n", flags=re.M)

    def place(self, line):
        """(file, its line) of a line of the bundle"""
        i = max(i for i, start in enumerate(self.starts) if start < line or i == 0)
        return self.files[i], max(1, line - self.starts[i])

    def told(self, text):
        """A program's output, of the sources instead of the bundle."""
        def there(match):
            file, line = self.place(int(match[1]))
            return f"{file}:{line}"
        return re.sub(re.escape(str(self.path)) + r":(\d+)", there, text)


class Tidy:
    """Checks groups of sources; what cannot be compiled with the rest of its group becomes a group of its own."""

    def __init__(self, keys, deep):
        self.keys, self.number = keys, itertools.count()
        self.depth = () if deep else SHALLOW

    def compiled(self, flags, files):
        """(a bundle of as many of the files as can be compiled as one, the others)"""
        path = KEPT / f"bundle-{next(self.number)}.cpp"
        taken = list(files)
        while True:
            bundle = Bundle(path, taken)
            if len(taken) == 1:
                break
            result = subprocess.run([tool("clang++"), *flags, "-w", *compiler_headers(), "-fsyntax-only",
                                     "-ferror-limit=0", str(path)], cwd=ROOT, capture_output=True, text=True)
            if result.returncode == 0:
                break
            wrong = {pathlib.Path(name) for name in re.findall(r"^([^:\n]+):\d+:\d+: (?:fatal )?error: ",
                                                               bundle.told(result.stderr), re.M)}
            taken = [file for file in taken if file not in wrong] if wrong & {*taken[1:]} else taken[:1]
            taken = taken or files[:1]
        return bundle, [file for file in files if file not in taken]

    def check(self, bundle, flags):
        command = [tool("clang-tidy"), f"--config-file={ROOT / '.clang-tidy'}", "--quiet", "--warnings-as-errors=*",
                   *self.depth, str(bundle.path), "--", *flags, "-Wno-unknown-warning-option", "-Wno-unused-command-line-argument",
                   *compiler_headers()]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if result.returncode:
            print(bundle.told(result.stdout + result.stderr), flush=True)
            return False
        for file in bundle.files:
            (KEPT / self.keys[file]).touch()
        bundle.path.unlink()
        return True

    def run(self, groups):
        """groups: [(flags, files)]"""
        good = True
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            def perform(flags, files):
                bundle, others = self.compiled(flags, files)
                later = [pool.submit(perform, flags, others)] if others else []
                return self.check(bundle, flags), later
            waiting = [pool.submit(perform, *group) for group in groups]
            while waiting:
                fine, later = waiting.pop(0).result()
                good = good and fine
                waiting += later
        return good


def check(files, headers, deep):
    """clang-tidy on those of the files that are compiled; headers: what any of them might include."""
    database = BUILD / "compile_commands.json"
    if not database.exists():
        print("build/compile_commands.json is missing: build first")
        return False
    wanted = {str(path) for path in files}
    entries = {pathlib.Path(entry["file"]): entry for entry in json.loads(database.read_text()) if entry["file"] in wanted}
    KEPT.mkdir(exist_ok=True)
    keys = verdict_keys(entries, headers, deep)
    groups = {}
    for path in sorted(entries):
        if not (KEPT / keys[path]).exists():
            alone = path if path.is_relative_to(ALONE) else None
            groups.setdefault((alone, flags_of(entries[path])), []).append(path)
    # The largest first: it is what others wait for.
    return Tidy(keys, deep).run(sorted(((flags, paths) for (_, flags), paths in groups.items()), key=lambda group: -len(group[1])))
