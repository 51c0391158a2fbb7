"""Shares one Chromium among all tests and makes each page once. The stage `page` of tools/stages provides Chromium."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from page_cases import command
from page_driver import Browser
from playwright.sync_api import sync_playwright

FIGURES = {}  # {case: (bytes, milliseconds)}, printed at the end


@dataclass
class Made:
    name: str
    path: Path
    line: str  # the output of --json
    data: dict


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """made(case) returns the page and its JSON."""
    folder, known = tmp_path_factory.mktemp("pages"), {}

    def make(name):
        if name not in known:
            path = folder / f"{name}.html"
            done = subprocess.run(command(name, folder, path), capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            assert done.stdout.count("\n") == 1
            known[name] = Made(name, path, done.stdout.rstrip("\n"), json.loads(done.stdout))
        return known[name]

    return make


@pytest.fixture(scope="session")
def browser():
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        yield Browser(chromium)
        chromium.close()


@pytest.fixture
def opened(browser, made):
    """opened(case, size=, scheme=, ...) returns the newly opened page."""
    return lambda name, **settings: browser.open(made(name).path, **settings)


@pytest.fixture
def shared(browser, made):
    """shared(case) returns the page on a desktop, for tests that work after other tests have moved its sliders."""
    return lambda name: browser.last(made(name).path)


@pytest.fixture
def figures():
    return FIGURES


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # in a worker process: pass the figures to the process that prints them
        session.config.workeroutput["figures"] = FIGURES


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    FIGURES.update(getattr(node, "workeroutput", {}).get("figures", {}))


def pytest_terminal_summary(terminalreporter):
    if FIGURES:
        terminalreporter.write_line("page                  KB    ms until it is painted")
    for name, (size, milliseconds) in FIGURES.items():
        terminalreporter.write_line(f"{name:18} {size / 1000:7.0f} {milliseconds:7.0f}")
