"""What need not be run again: stages that were green for the same sources; of the test program's stages the tests of files
that have not changed, where nothing else has.
"""

import hashlib
import json
import os
import subprocess

from counted import BUILD, RESULTS, ROOT, Count, gtest

KEPT = BUILD / "stages"  # what was green


def source_digests():
    """{file: digest} of everything that a build or a test reads."""
    digests = {}
    for top in sorted(ROOT.iterdir()):
        if top.name.startswith(("build", "dist")) or (top.name.startswith(".") and not top.name.startswith(".clang")):
            continue
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digests[str(path.relative_to(ROOT))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


def joined(digests):
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def source_of(test):
    """Of a test in one of gtest's reports."""
    return "tests/" + test["file"].rpartition("/")[2]


def settings():
    """evenorm's environment variables, which tests may follow."""
    return {name: value for name, value in os.environ.items() if name.startswith("EVENORM_") and name != "EVENORM_TALLY"}


def parts(digests):
    """(digest of what concerns every test, {file of tests: digest})"""
    tests = {
        path: digest for path, digest in digests.items() if path.startswith("tests/") and path.endswith("_test.cpp")
    }
    rest = {path: digest for path, digest in digests.items() if path not in tests}
    return joined({**rest, **settings()}), tests


def tests_in(files, test_filter):
    """The tests of these files that a filter selects."""
    listed = RESULTS / "list.json"
    RESULTS.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            BUILD / "evenorm_tests",
            "--gtest_list_tests",
            f"--gtest_filter={test_filter}",
            f"--gtest_output=json:{listed}",
        ],
        check=True,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    return [
        f"{suite['name']}.{test['name']}"
        for suite in json.loads(listed.read_text())["testsuites"]
        for test in suite["testsuite"]
        if source_of(test) in files
    ]


def counts_by_file(stage):
    """{file: [passed, skipped]} of the reports of a run that was green."""
    counts = {}
    for report in RESULTS.glob(f"{stage}.[0-9]*.json"):
        for suite in json.loads(report.read_text(encoding="utf-8", errors="replace"))["testsuites"]:
            for test in suite["testsuite"]:
                skipped = test.get("status") == "NOTRUN" or test.get("result") == "SKIPPED"
                counts.setdefault(source_of(test), [0, 0])[skipped] += 1
    return counts


def run_changed(stage, test_filter, built):
    """A stage of the test program; of files that have not changed since it was green, where nothing else has, as it was.

    built: what source_digests() said before the program was built; None where that is not known: all tests are run.
    """
    if built is None:
        return gtest(stage, test_filter)
    rest, files = parts(built)
    kept = KEPT / f"{stage}.files.json"
    try:
        known = json.loads(kept.read_text())
        known = known["files"] if known["rest"] == rest else {}
    except (OSError, ValueError, KeyError):
        known = {}
    kept.unlink(missing_ok=True)
    same = {file: entry for file, entry in known.items() if files.get(file) == entry["digest"]}
    changed = {file for file in files if file not in same}
    if not same or not changed:
        same, changed = {}, set(files)
    names = tests_in(changed, test_filter) if same else [test_filter]
    count = gtest(stage, ":".join(names)) if names else Count()
    if count.failed or source_digests() != built:  # tests read files, too
        return count
    counts = counts_by_file(stage) if names else {}
    entries = {file: {"digest": files[file], "count": counts.get(file, [0, 0])} for file in changed} | same
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"rest": rest, "files": entries}))
    passed, skipped = (sum(entry["count"][i] for entry in same.values()) for i in (0, 1))
    before = Count(passed, 0, skipped)
    count.add(before)
    if before:
        count.remark = f"{before.passed} of them before, in files that are as they were"
    return count
