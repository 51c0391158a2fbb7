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


@dataclass
class Made:
    path: Path
    data: dict  # the output of --json


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """made(case) returns the page and its JSON."""
    folder, known = tmp_path_factory.mktemp("pages"), {}

    def make(name):
        if name not in known:
            path = folder / f"{name}.html"
            done = subprocess.run(command(name, folder, path), capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            known[name] = Made(path, json.loads(done.stdout))
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
