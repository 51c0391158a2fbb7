"""The section `precision`: what its runs say together, its plots, its text."""

from collections.abc import Mapping
from typing import Any

from . import _plots, precision
from ._page import Page, range_of
from ._sections import CONDITIONS, FAILS, HOLDS, Claim, Section, spread

CLAIMS = (
    Claim(
        "gradient",
        "In bfloat16, PyTorch's layer norm on the CPU gives wrong gradients of its parameters over many rows: 256 for the sum "
        "of 4096 ones. evenorm's are right.",
        "evenorm's docs/python.md",
    ),
    Claim(
        "learning",
        "The wrong gradient changes what is learnt.",
        "our own question: it is what would make the first matter",
    ),
)
LABELS = {"torch": "torch.nn.LayerNorm", "evenorm": "evenorm.torch.LayerNorm"}
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam"}
ERRORS = ("dgamma of ones", "dgamma of normal numbers", "dbeta of normal numbers")
# A gradient counts as wrong above this: bf16's own rounding of a result is at most 2^-8 of it.
WRONG = 0.01


def gradients_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for parameters in ("bfloat16", "float32"):
        found[parameters] = {}
        for rows in dict.fromkeys(run["settings"]["rows"] for run in runs):
            for threads in (1, 2):
                wanted = {"part": "gradient", "parameters": parameters, "threads": threads, "rows": rows}
                of = [run["result"] for run in runs if run["settings"] == wanted]
                found[parameters].setdefault(str(rows), {"rows": rows})[f"threads {threads}"] = {
                    norm: {
                        "dbeta of ones": of[0][norm]["dbeta of ones"],
                        **{name: spread([one[norm][f"{name}, relative error"] for one in of]) for name in ERRORS},
                    }
                    for norm in precision.NORMS
                }
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    gradients = gradients_of([run for run in runs if run["settings"]["part"] == "gradient"])
    training: list[dict[str, Any]] = []
    for part, many in (("affine", "rows"), ("digits", "samples")):
        of = [run for run in runs if run["settings"]["part"] == part]
        for optimizer in precision.OPTIMIZERS:
            for number in dict.fromkeys(run["settings"][many] for run in of):
                chosen = {
                    norm: [
                        run["result"]
                        for run in of
                        if (run["settings"]["norm"], run["settings"]["optimizer"], run["settings"][many])
                        == (norm, optimizer, number)
                    ]
                    for norm in precision.NORMS
                }
                names = [name for name, value in chosen["torch"][0].items() if isinstance(value, float)]
                final = "held-out loss" if part == "digits" else "final loss"
                values = {norm: [one[final] for one in found] for norm, found in chosen.items()}
                training.append(
                    {
                        "part": part,
                        "optimizer": optimizer,
                        "number": number,
                        "rows": number if part == "affine" else number * precision.TOKENS,
                        **{
                            norm: {name: spread([one[name] for one in found]) for name in names}
                            for norm, found in chosen.items()
                        },
                        "judged by": final,
                        "ratio": spread([a / b for a, b in zip(values["torch"], values["evenorm"], strict=True)]),
                        "apart": min(values["torch"]) > max(values["evenorm"])
                        or max(values["torch"]) < min(values["evenorm"]),
                    }
                )
    rows = list(gradients["bfloat16"])
    low = {at: gradients["bfloat16"][at]["threads 1"] for at in rows}
    return {
        "cols": precision.COLS,
        "tokens": precision.TOKENS,
        "rows": [int(at) for at in rows],
        "most rows": int(rows[-1]),
        "wrong above": WRONG,
        "gradients": gradients,
        "wrong in torch": {
            name: [int(at) for at in rows if low[at]["torch"][name]["median"] > WRONG] for name in ERRORS
        },
        "torch's dbeta of ones is wrong at": [int(at) for at in rows if low[at]["torch"]["dbeta of ones"] != int(at)],
        "evenorm's dbeta of ones is wrong at": [
            int(at) for at in rows if low[at]["evenorm"]["dbeta of ones"] != int(at)
        ],
        "evenorm's largest error": max(low[at]["evenorm"][name]["max"] for at in rows for name in ERRORS),
        "torch's largest error with float32 parameters": max(
            gradients["float32"][at][f"threads {threads}"]["torch"][name]["max"]
            for at in rows
            for name in ERRORS
            for threads in (1, 2)
        ),
        "training": training,
        "trainings": len(training),
        "trainings apart": sum(one["apart"] for one in training),
    }


def judge(found: dict[str, Any]) -> dict[str, str]:
    wrong, ours = found["torch's dbeta of ones is wrong at"], found["evenorm's dbeta of ones is wrong at"]
    evenorm_right = not ours and found["evenorm's largest error"] < WRONG
    many = found["torch's largest error with float32 parameters"] < WRONG
    apart = found["trainings apart"]
    return {
        "gradient": FAILS if not (wrong and evenorm_right) else CONDITIONS if many else HOLDS,
        "learning": HOLDS if apart == found["trainings"] else CONDITIONS if apart else FAILS,
    }


def figures(pyplot: Any, result: Any) -> dict[str, Any]:
    found = result["summary"]
    gradient, axes = pyplot.subplots(1, 2, figsize=(9, 3.4))
    rows, low = found["rows"], found["gradients"]["bfloat16"]
    axes[0].plot(rows, rows, color="#999999", linestyle="--", label="right")
    for index, (norm, label) in enumerate(LABELS.items()):
        values = [low[str(at)]["threads 1"][norm]["dbeta of ones"] for at in rows]
        axes[0].plot(rows, values, color=_plots.COLOURS[1 - index], marker=_plots.MARKERS[index], label=label)
        errors = [low[str(at)]["threads 1"][norm]["dgamma of normal numbers"] for at in rows]
        _plots.band(axes[1], rows, errors, label, 1 - index)
    axes[0].set(xlabel="rows", ylabel="dbeta of that many ones", xscale="log", yscale="log")
    axes[1].set(xlabel="rows", ylabel="relative error of dgamma, normal numbers", xscale="log", yscale="log")
    axes[0].legend()
    return {"gradient": gradient, "loss": curves(pyplot, result)}


def curves(pyplot: Any, result: Any) -> Any:
    training = result["summary"]["training"]
    wide = max(
        sum(one["part"] == part and one["optimizer"] == "sgd" for one in training) for part in ("affine", "digits")
    )
    figure, axes = pyplot.subplots(4, wide, figsize=(3 * wide, 8), squeeze=False)
    columns = dict.fromkeys(range(4), 0)
    for one in training:
        line = 2 * (one["part"] == "digits") + (one["optimizer"] == "adam")
        place = axes[line][columns[line]]
        columns[line] += 1
        for index, (norm, label) in enumerate(LABELS.items()):
            losses = [
                run["result"]["loss"]
                for run in result["runs"]
                if run["settings"]["part"] == one["part"]
                and run["settings"]["optimizer"] == one["optimizer"]
                and run["settings"]["norm"] == norm
                and run["settings"][{"affine": "rows", "digits": "samples"}[one["part"]]] == one["number"]
            ]
            spreads = [spread(values) for values in zip(*losses, strict=True)]
            steps = range(1, len(spreads) + 1)
            colour = _plots.COLOURS[1 - index]
            place.plot(
                steps,
                [value["median"] for value in spreads],
                color=colour,
                label=label,
                linestyle="-" if index else "--",
            )
            place.fill_between(
                steps,
                [value["min"] for value in spreads],
                [value["max"] for value in spreads],
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
        place.set(
            title=f"{one['part']}, {OPTIMIZERS[one['optimizer']]}, {one['rows']} rows",
            yscale="log",
            xlabel="step",
            ylabel="loss",
        )
    for line, used in columns.items():
        for unused in axes[line][used:]:
            unused.axis("off")
    axes[0][0].legend(fontsize=7)
    return figure


def write(page: Page) -> Mapping[str, str]:
    rows = page.at("summary/rows")
    page.say(
        "**Gradients.** Rows of {summary/cols} columns in bfloat16 with bfloat16 parameters, dy of ones: dbeta should be the number of "
        "rows. Errors are RMS, relative to the RMS of the right ones, of rows and dy from the normal distribution."
    )
    base = "summary/gradients"
    page.table(
        ["rows", "torch's dbeta of ones", "with two threads", "evenorm's", "torch's error of dgamma", "evenorm's", "torch's of dbeta", "evenorm's",
         "torch's of dgamma, float32 parameters"],
        [
            [
                f"{{{base}/bfloat16/{at}/rows}}",
                *(f"{{{base}/bfloat16/{at}/{threads}/{norm}/dbeta of ones:,.0f}}"
                  for threads, norm in (("threads 1", "torch"), ("threads 2", "torch"), ("threads 1", "evenorm"))),
                *(range_of(f"{base}/bfloat16/{at}/threads 1/{norm}/{name} of normal numbers", ".2g")
                  for name in ("dgamma", "dbeta") for norm in ("torch", "evenorm")),
                range_of(f"{base}/float32/{at}/threads 1/torch/dgamma of normal numbers", ".2g"),
            ]
            for at in rows
        ],
    )  # fmt: skip
    page.figure("gradient", "dbeta of ones, and the error of dgamma, over the number of rows")
    page.say(
        "**Training.** Both in bfloat16, with a float32 copy of the parameters that the optimizer changes. “affine”: a norm alone "
        "learns another's gamma and beta, an error that all rows share. “digits”: a small network reads scikit-learn's digits, each as "
        "{summary/tokens} rows of pixels. Same seeds, same data for both norms. “Ratio” is torch's loss over evenorm's, seed by seed."
    )
    page.table(
        ["task", "optimizer", "rows", "loss with torch's", "loss with evenorm's", "ratio", "all seeds apart"],
        [
            [
                one["part"],
                OPTIMIZERS[one["optimizer"]],
                f"{{summary/training/{index}/rows}}",
                *(range_of(f"summary/training/{index}/{norm}/{one['judged by']}") for norm in LABELS),
                range_of(f"summary/training/{index}/ratio"),
                "yes" if one["apart"] else "no",
            ]
            for index, one in enumerate(page.at("summary/training"))
        ],
    )
    page.figure("loss", "Loss by step with either norm: medians of the seeds, smallest to largest")
    apart = [
        f"{one['part']} with {OPTIMIZERS[one['optimizer']]} over {{summary/training/{index}/rows}} rows "
        f"(ratio {range_of(f'summary/training/{index}/ratio')})"
        for index, one in enumerate(page.at("summary/training"))
        if one["apart"]
    ]
    return {
        "gradient": "torch's dbeta of ones is wrong at these numbers of rows: {summary/torch's dbeta of ones is wrong at}; evenorm's at these: "
        "{summary/evenorm's dbeta of ones is wrong at}. Of normal numbers, torch's dgamma is off by more than {summary/wrong above:.0%} at: "
        "{summary/wrong in torch/dgamma of normal numbers}; evenorm's largest error of all is {summary/evenorm's largest error:.2g}. "
        + ("Condition: bfloat16 parameters. " if page.at("verdicts/gradient") == CONDITIONS else "Float32 parameters do not help. ")
        + "With float32 parameters beside a bfloat16 x, torch's largest error is "
        "{summary/torch's largest error with float32 parameters:.2g}.",
        "learning": "Losses count as apart where all seeds of the one norm are above all of the other. That is so in {summary/trainings apart} of {summary/trainings} trainings: "
        + ("; ".join(apart) or "none") + ".",
    }  # fmt: skip


SECTION = Section("precision", "Precision", CLAIMS, precision.runs, precision.run, summary, judge, figures, write)
