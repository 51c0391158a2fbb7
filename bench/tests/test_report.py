"""The results as Markdown."""

import outcomes
import report
from points import Point


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def table_under(text, heading):
    lines = text.split(f"### {heading}\n\n", 1)[1].split("\n\n", 1)[0].splitlines()
    return [cells(line) for line in lines]


def test_a_table_for_each_form_type_threads_and_target(document):
    text = report.table(outcomes.Results(document))
    assert text.count("### ") == 12
    heads, _, *rows = table_under(text, "forward, f32, 1 thread, the machine's target: processor time")
    assert heads == ["rows x columns", "evenorm us", "GB/s", "of the best copy", "oneDNN", "PyTorch", "ONNX Runtime"]
    assert [row[0] for row in rows] == ["1 x 768", "512 x 32", "64 x 768", "4096 x 768", "8192 x 2048"]
    assert rows[2] == [
        "64 x 768",
        "5.02",
        "78.4",
        "0.71",
        "1.27 (1.25 .. 1.30)",
        "2.55 (2.50 .. 2.60)",
        "4.08 (4.00 .. 4.16)",
    ]
    assert "### gradients, statistics given, bf16, 2 threads, the machine's target: wall time" in text
    assert "### forward, f32, 1 thread, all held to AVX2: processor time" in text
    assert "### forward, RMS norm, f32, 1 thread, the machine's target: processor time" in text


def test_images(document):
    text = report.table(outcomes.Results(document))
    heads, _, row = table_under(text, "channels first, f32, 1 thread, the machine's target: processor time")
    assert (heads[0], row[0]) == ("images x channels x pixels", "8 x 1024 x 196")


def test_insignificant_ratios_are_in_italics(document):
    results = outcomes.Results(document)
    heading = "forward, f32, mean 3 standard deviations, 1 thread, the machine's target: processor time"
    heads, _, row = table_under(report.table(results), heading)
    assert (heads[-1], row[-1]) == ("oneDNN", "*1.01 (0.99 .. 1.04)*")
    assert report.table(results).count("*") == 2


def test_summary(document, entry):
    document["points"][0]["runs"] = document["points"][0]["runs"][:1]
    document["points"][0]["runs"][0]["ratios"]["onednn"] = [0.4, 0.5, 0.6]
    document["points"].append(entry(Point("forward", "layer", "f32", 3, 100), onednn=0.7))
    heads, _, *rows = (cells(line) for line in report.summary(outcomes.Results(document)).splitlines())
    assert heads == ["pass", "type", "threads", "best copy", "oneDNN", "PyTorch", "ONNX Runtime"]
    assert len(rows) == 11  # neither other data nor other targets
    mean = (0.5 * 0.7 * (1.25 * 1.02) ** 4) ** (1 / 6)
    assert rows[0][:3] + rows[0][4:5] == ["forward", "f32", "1", f"{mean:.2f} (0.50: 1 x 768)"]
    assert rows[1] == ["forward, widths not divisible by 16", "f32", "1", "", "0.70", "", ""]
    assert rows[9] == ["forward, RMS norm", "f32", "1", "0.60", "", "0.50", ""]


def test_the_whole(document):
    text = report.document(outcomes.Results(document))
    assert "A processor (Made 3, family 1 model 2), 2 processors, L1d 48K, L2 1024K, L3 32M" in text
    assert "oneDNN 3.2.0" in text and "`--seed 7` repeats" in text and "Plots" not in text
    assert "the lowest and highest of" not in text and "quartiles of one run's rounds" in text  # some have one run


def test_nothing_measured(document):
    assert "Nothing was measured" in report.document(outcomes.Results(document | {"points": []}))
