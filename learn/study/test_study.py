"""Tests of the study on a smoke run: JSON, plots and report of every section, repeatability, and resuming."""

import inspect
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn", reason="scikit-learn, whose digits the study learns, is not installed")
pytest.importorskip("matplotlib", reason="matplotlib, which draws the study's plots, is not installed")

from study import _claims, _command, _page, _plots, _sections, _store  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
LEARN = ROOT / "learn"
STUDY = [sys.executable, "-m", "study"]
NAMES = list(_sections.NAMES)
QUICK = ("batch", "shift")  # `make test-all` repeats the other sections
EACH = [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in NAMES]


def study(*words):
    done = subprocess.run([*STUDY, *map(str, words)], capture_output=True, text=True, cwd=LEARN)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The folder of one smoke run of all sections."""
    folder = tmp_path_factory.mktemp("study")
    assert study("--smoke", "--jobs", "2", "--output", folder).stderr == ""
    return folder


def read(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_json_has_settings_seeds_results_and_verdicts(smoke, name):
    whole, section = read(smoke, name), _sections.load(name)
    runs = section.runs(True)
    assert whole["smoke"] and len(whole["runs"]) == len(runs)
    assert [(run["settings"], run["seed"]) for run in whole["runs"]] == [
        (json_of(run.settings), run.seed) for run in runs
    ]
    assert (
        set(whole["verdicts"])
        == {claim["name"] for claim in whole["claims"]}
        == {claim.name for claim in section.claims}
    )
    assert set(whole["verdicts"].values()) <= {_claims.HOLDS, _claims.CONDITIONS, _claims.FAILS}
    about = json.loads((smoke / f"{name}.machine.json").read_text())
    assert about["versions"]["torch"] and re.fullmatch(r"\d{4}-\d\d-\d\d", about["date"])


def json_of(value):
    return json.loads(json.dumps(dict(value)))


def test_gamma_begins_at_1(smoke):
    assert max(run["result"]["moved"][0] for run in read(smoke, "bits")["runs"]) < 0.1


@pytest.mark.parametrize("name", NAMES)
def test_a_full_run_has_five_seeds(name):
    found = {}
    for run in _sections.load(name).runs(False):
        found.setdefault(json.dumps(dict(run.settings)), set()).add(run.seed)
    assert {len(seeds) for seeds in found.values()} == {5}


@pytest.mark.parametrize("name", NAMES)
def test_plots_depend_only_on_the_json(smoke, tmp_path, name):
    (tmp_path / f"{name}.json").write_bytes((smoke / f"{name}.json").read_bytes())
    _command.draw(tmp_path)
    drawn = sorted(path.name for path in smoke.glob(f"{name}-*.svg"))
    assert drawn
    for path in drawn:
        assert (tmp_path / path).read_bytes() == (smoke / path).read_bytes(), path


def test_the_report_has_claims_plots_and_verdicts(smoke):
    report = (smoke / "report.md").read_text()
    for name in NAMES:
        whole = read(smoke, name)
        for claim in whole["claims"]:
            assert claim["text"] in report and claim["source"] in report
            assert f"**{claim['name']}: {whole['verdicts'][claim['name']]}.**" in report
    assert set(re.findall(r"\]\(([^)]+\.svg)\)", report)) == {path.name for path in smoke.glob("*.svg")}


def test_numbers_of_seeds_as_text():
    assert _page.ranged(_sections.spread([3.0, 1.0, 2.5]), ".1f") == "2.5 (1.0 to 3.0)"
    assert _page.ranged(_sections.spread_if([1.0, None])) == "none"
    assert _page.listed([0.1, 1]) == "0.1, 1" and _page.listed([]) == "none"
    assert _page.table(["a", "b"], [[1, "x"]]) == "| a | b |\n| --- | --- |\n| 1 | x |"


@pytest.fixture(autouse=True)
def torch_as_before():
    """Restores the threads and determinism of torch, which a run in this process sets."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


def here(*words):
    """Runs the command in this process."""
    return _command.main([*map(str, words), "--smoke", "--jobs", "1"])


@pytest.mark.parametrize("name", EACH)
def test_same_seeds_give_the_same_json_in_one_process_or_two(smoke, tmp_path, name):
    assert here(name, "--output", tmp_path) == 0
    assert (tmp_path / f"{name}.json").read_bytes() == (smoke / f"{name}.json").read_bytes()


def test_a_killed_run_resumes_to_the_same_json(smoke, tmp_path):
    killed = f"""
        import os, signal
        from study import _command, _store
        write, count = _store.write_bytes, iter(range(5))
        def killed(path, content):
            if next(count) == 4:
                (path.parent / f".{{path.name}}.torn").write_bytes(content[:50])
                os.kill(os.getpid(), signal.SIGKILL)
            write(path, content)
        _store.write_bytes = killed
        _command.main(["batch", "--smoke", "--jobs", "1", "--output", {str(tmp_path)!r}])
    """
    done = subprocess.run([sys.executable, "-c", inspect.cleandoc(killed)], capture_output=True, cwd=LEARN)
    assert done.returncode == -signal.SIGKILL, done.stderr
    runs = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs" / "batch").glob("[!.]*.json")}
    assert len(runs) == 4 and not (tmp_path / "batch.json").exists()
    torn = next(iter(runs))
    torn.write_text(torn.read_text()[:50])  # a truncated file, as a faulty disk may leave it
    assert here("batch", "--output", tmp_path) == 0
    assert (tmp_path / "batch.json").read_bytes() == (smoke / "batch.json").read_bytes()
    assert all(path.stat().st_mtime_ns == when for path, when in runs.items() if path != torn)


def test_an_interrupted_run_reports_how_to_continue(tmp_path, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_store.Runs, "write", interrupt)
    assert here("batch", "--output", tmp_path) == 130
    assert f'make study ARGS="batch --smoke --output {tmp_path}"' in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_interrupted_with_its_workers(tmp_path):
    interrupted = f"""
        import os, signal
        from study import _command, _store
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore SIGINT
        write = _store.Runs.write
        def interrupt(*arguments):
            write(*arguments)
            os.killpg(0, signal.SIGINT)  # a terminal signals the workers, too
        _store.Runs.write = interrupt
        words = ["batch", "--smoke", "--jobs", "2", "--output", {str(tmp_path)!r}]
        raise SystemExit(_command.main(words))
    """
    words = [sys.executable, "-c", inspect.cleandoc(interrupted)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, **pipes, cwd=LEARN, start_new_session=True)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert f'make study ARGS="batch --smoke --output {tmp_path}"' in errors and "Traceback" not in errors


def test_a_run_of_other_versions_is_not_reused(tmp_path, monkeypatch):
    section = _sections.load("batch")
    run = section.runs(True)[0]
    _store.Runs(tmp_path, section).write(run, {"share": 1}, 0.5)
    assert _store.Runs(tmp_path, section).read(run)["result"] == {"share": 1}
    monkeypatch.setattr(_store, "versions", lambda: {"torch": "another"})
    assert _store.Runs(tmp_path, section).read(run) is None


def test_not_a_number_is_never_written():
    with pytest.raises(ValueError):
        _store.text_of({"loss": math.nan})


def test_list_and_wrong_names(capsys):
    assert _command.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in NAMES)
    with pytest.raises(SystemExit):
        _command.main(["bach"])
    assert "no section 'bach'" in capsys.readouterr().err


def test_layer_norm_depends_on_no_mate_and_batch_norm_does(smoke):
    for run in read(smoke, "batch")["runs"]:
        bits = run["result"]["dependence"]
        if run["settings"]["norm"].startswith("layer"):
            assert (
                bits["norm, as many mates"]
                == bits["norm, other numbers of mates"]
                == bits["network, as many mates"]
                == 0
            )
            assert run["result"]["modes apart, bits"] == 0
        elif run["settings"]["norm"] == "batch" and run["settings"]["size"] > 1:
            assert bits["norm, as many mates"] > 0 and bits["network, as many mates"] > 0


def test_the_page_of_docs_is_made_from_its_json(tmp_path):
    """docs/study holds a full run, and its report and verdicts follow from its JSON."""
    folder = ROOT / "docs" / "study"
    for name in NAMES:
        whole, section = read(folder, name), _sections.load(name)
        assert not whole["smoke"]
        assert [(run["settings"], run["seed"]) for run in whole["runs"]] == [
            (json_of(run.settings), run.seed) for run in section.runs(False)
        ]
        assert whole["verdicts"] == section.judge(section.summary(whole["runs"]))
        (tmp_path / f"{name}.json").write_bytes((folder / f"{name}.json").read_bytes())
    _command.draw(tmp_path)
    assert (tmp_path / "report.md").read_text() == (folder / "report.md").read_text()
    assert {path.name for path in tmp_path.glob("*.svg")} == {path.name for path in folder.glob("*.svg")}


def test_plots_keep_the_users_style():
    import matplotlib

    def settings():
        return {key: value for key, value in matplotlib.rcParams.items() if not key.startswith("backend")}

    before = settings()
    with _plots.styled():
        assert matplotlib.rcParams["svg.hashsalt"] == "evenorm"
    assert settings() == before


def test_sources_of_a_run_include_imports():
    from study import batch, gpt

    names = {name: set(_store.sources_of(sys.modules[_sections.load(name).run.__module__])) for name in NAMES}
    assert gpt.__name__ in names["depth"]
    assert names["batch"] == {batch.__name__}
