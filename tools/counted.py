"""Commands and test programs, and how many tests passed in them, for tools/stages."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
RESULTS = BUILD / "results"
JOBS = os.cpu_count() or 1
TIME_LIMIT = 3600  # seconds for one run of the test program: what hangs is told, not waited for


class Count:
    def __init__(self, passed=0, failed=0, skipped=0, remark=""):
        self.passed, self.failed, self.skipped = passed, failed, skipped
        self.remark = remark  # what else is worth a line

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __bool__(self):
        return bool(self.passed or self.failed or self.skipped)

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else "")


def run(*command, quiet=False, env=None):
    """One command, its output shown (quiet: only what it says on stderr); a failed one counts as one failure."""
    sys.stdout.flush()
    status = subprocess.run([str(part) for part in command], cwd=ROOT, env=env,
                            stdout=subprocess.DEVNULL if quiet else None).returncode
    if status:
        print(f"failed with status {status}: {' '.join(str(part) for part in command)}")
    return Count(failed=1 if status else 0)


def told(*command, env=None):
    """(status, output) of one command, shown line by line."""
    sys.stdout.flush()
    lines = []
    with subprocess.Popen([str(part) for part in command], cwd=ROOT, env=env, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def count_report(path):
    """Counts of one gtest JSON report, and the failures' text."""
    count, failures = Count(), []
    for suite in json.loads(path.read_text(encoding="utf-8", errors="replace")).get("testsuites", []):
        for test in suite["testsuite"]:
            name = f"{suite['name']}.{test['name']}"
            if test.get("failures"):
                count.failed += 1
                failures.append(name + "\n" + "\n".join(failure["failure"] for failure in test["failures"]))
            elif test.get("status") == "NOTRUN" or test.get("result") == "SKIPPED":
                count.skipped += 1
            else:
                count.passed += 1
    return count, failures


def run_shard(command, stage, shard, environment, limit):
    """One part of the test program's tests: its counts, and the failures' text."""
    report = RESULTS / f"{stage}.{shard}.json"
    log = report.with_suffix(".log")
    report.unlink(missing_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen([*command, f"--gtest_output=json:{report}"], cwd=ROOT, stdout=output,
                                   stderr=subprocess.STDOUT, env={**environment, "GTEST_SHARD_INDEX": str(shard)})
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
    count, failures = count_report(report) if report.exists() else (Count(), [])
    if report.exists() and (count.failed or not status):
        return count, failures
    text = log.read_text(encoding="utf-8", errors="replace")
    # What ran before the end is known from the log alone.
    count = Count(passed=len(re.findall(r"^\[       OK \]", text, re.M)),
                  failed=len(re.findall(r"^\[  FAILED  \] .* \(\d+ ms\)$", text, re.M)) + 1,
                  skipped=len(re.findall(r"^\[  SKIPPED \] .* \(\d+ ms\)$", text, re.M)))
    begun = re.findall(r"^\[ RUN      \] (.*)$", text, re.M)
    return count, [f"the test program ended with status {status} in {begun[-1] if begun else 'its start'}\n"
                   + "\n".join(text.splitlines()[-25:])]


def gtest(stage, test_filter, binary=BUILD / "evenorm_tests", runner=(), jobs=JOBS, pieces=1, limit=TIME_LIMIT,
          settings=()):
    """The test program, `jobs` at once, through `runner`; only failures are shown. pieces: shards for each of them, so
    that all end at about one time. settings: environment."""
    if not binary.exists():
        print(f"{binary.relative_to(ROOT)} has not been built")
        return Count(failed=1)
    RESULTS.mkdir(parents=True, exist_ok=True)
    shards = jobs * pieces
    environment = {**os.environ, **dict(settings), "GTEST_TOTAL_SHARDS": str(shards)}
    command = [*runner, binary, f"--gtest_filter={test_filter}"]
    total = Count()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            for count, failures in pool.map(lambda i: run_shard(command, stage, i, environment, limit), range(shards)):
                for failure in failures:
                    print("FAILED " + failure)
                total.add(count)
        finally:
            pool.shutdown(cancel_futures=True)  # interrupted: those that have not begun do not begin
    if not (total.passed or total.failed):
        print(f"no test matches {test_filter}")
        total.failed += 1
    print(total)
    return total


def pytest(stage, *options, env=None, venv=".venv"):
    """Python's tests, in that virtual environment, a file for each processor at once."""
    tools, report = ROOT / venv / "bin", RESULTS / f"{stage}.xml"
    RESULTS.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    # Packages are installed without bytecode: it is written once, not compiled by each process that imports them.
    env = {**(env or os.environ), "PYTHONDONTWRITEBYTECODE": ""}
    status = run(tools / "python", "-m", "pytest", "--quiet", "--no-header", "--numprocesses", JOBS, "--dist",
                 "loadfile", "--no-loadscope-reorder", f"--junitxml={report}", *options, env=env)
    if not report.exists():
        return status  # it died, and said where
    count = Count()
    for suite in xml.etree.ElementTree.parse(report).getroot():
        tests, skipped = int(suite.get("tests")), int(suite.get("skipped"))
        failed = int(suite.get("failures")) + int(suite.get("errors"))
        count.add(Count(tests - failed - skipped, failed, skipped))
    if status.failed and not count.failed:
        count.add(status)
    return count


def tests_of(test_filter="*"):
    """The names of the tests that a filter selects."""
    listed = subprocess.run([BUILD / "evenorm_tests", "--gtest_list_tests", f"--gtest_filter={test_filter}"], check=True,
                            cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
    names, suite = [], ""
    for line in listed.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + name)
        elif name.endswith("."):
            suite = name
    return names
