"""The section `geometry`: what its runs say together, its plots, its text."""

from collections.abc import Mapping
from typing import Any

from . import _plots, geometry
from ._page import Page, range_of
from ._sections import CONDITIONS, FAILS, HOLDS, Claim, Section, spread

CLAIMS = (
    Claim(
        "keys",
        "Without layer norm some keys can be selected by no query; layer norm puts all keys on a sphere, where each can be.",
        "Brody, Alon and Yahav, On the Expressivity Role of LayerNorm in Transformers' Attention, arXiv:2305.02582 (2023), "
        "section 3.2",
    ),
    Claim(
        "ones",
        "Hidden vectors are nearly orthogonal to the vector of ones before they are normalised, so that taking out their "
        "mean does next to nothing, and RMS norm gives nearly the same.",
        "Gupta, Ozdemir and Anumanchipalli, Geometric Interpretation of Layer Normalization and a Comparative Analysis with "
        "RMSNorm, arXiv:2409.12951 (2024)",
    ),
    Claim(
        "table",
        "Which norms are invariant under which changes of weights and data: the 18 entries of table 1.",
        "Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450 (2016), section 5.1, table 1",
    ),
)
# Table 1: which changes leave what the norm gives as it was.
TABLE = {
    "batch": ("weight matrix re-scaled", "weight vector re-scaled", "data re-scaled", "data re-centred"),
    "weight": ("weight matrix re-scaled", "weight vector re-scaled"),
    "layer": ("weight matrix re-scaled", "weight matrix re-centred", "data re-scaled", "one case re-scaled"),
}
LABELS = {"batch": "batch norm", "weight": "weight norm", "layer": "layer norm", "rms": "RMS norm (not in table)"}
KEYS = {
    "plain": "as they are",
    "layer": "layer norm",
    "layer, gamma of any sign": "layer norm, gamma normal",
    "layer, half of gamma zero": "layer norm, half of gamma zero",
    "rms": "RMS norm",
}
EXACT, ROUNDED, NOT = "to the bit", "up to rounding", "no"
# Far above what rounding does to this many float64 sums, far below what a change does that counts.
ROUNDING, NEAR, SMALL = 1e-10, 5.0, 0.05


def kind_of(differences: list[dict[str, float]]) -> str:
    if all(one["elements whose bits change"] == 0 for one in differences):
        return EXACT
    return ROUNDED if max(one["largest difference"] for one in differences) < ROUNDING else NOT


def table_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """For each norm and change: what holds with eps = 0 in float64, how, and how far eps moves it."""

    def entries(dtype: str, eps: float, norm: str, change: str, factor: str) -> list[dict[str, float]]:
        wanted = {"part": "table", "dtype": dtype, "eps": eps}
        return [run["result"]["norms"][norm][change][factor] for run in runs if run["settings"] == wanted]

    found: dict[str, Any] = {}
    for norm in geometry.NORMS:
        found[norm] = {}
        for change in geometry.CHANGES:
            of = {
                (dtype, eps, factor): entries(dtype, eps, norm, change, factor)
                for dtype in ("float32", "float64")
                for eps in (0.0, 1e-5)
                for factor in geometry.FACTORS
            }
            largest = {key: max(one["largest difference"] for one in values) for key, values in of.items()}
            found[norm][change] = {
                "paper": None if norm not in TABLE else "invariant" if change in TABLE[norm] else "no",
                "power of two": kind_of(of["float64", 0.0, "a power of two"]),
                "other factor": kind_of(of["float64", 0.0, "not a power of two"]),
                "float64": largest["float64", 0.0, "not a power of two"],
                "float32": largest["float32", 0.0, "not a power of two"],
                "power of two, float32, elements changed": max(
                    one["elements whose bits change"] for one in of["float32", 0.0, "a power of two"]
                ),
                "with eps": largest["float64", 1e-5, "not a power of two"],
                "with eps, power of two": kind_of(of["float64", 1e-5, "a power of two"]),
            }
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    keys = [run for run in runs if run["settings"]["part"] == "keys"]
    numbers = list(dict.fromkeys(run["settings"]["number"] for run in keys))
    shares = {
        kind: {
            str(number): spread(
                [
                    run["result"]["share"]
                    for run in keys
                    if run["settings"]["keys"] == kind and run["settings"]["number"] == number
                ]
            )
            for number in numbers
        }
        for kind in geometry.KEYS
    }
    table = table_of(runs)
    in_table = [(norm, change) for norm in TABLE for change in geometry.CHANGES]
    invariant = [table[norm][change] for norm, change in in_table if table[norm][change]["other factor"] != NOT]
    agrees = [
        (table[norm][change]["paper"] == "invariant") == (table[norm][change]["other factor"] != NOT)
        for norm, change in in_table
    ]
    margins = [
        run["result"]["smallest margin"]
        for run in keys
        if run["settings"]["keys"] in ("layer", "layer, gamma of any sign", "rms")
    ]
    return {
        "width": geometry.WIDTH,
        "numbers": numbers,
        "most": str(numbers[-1]),
        "shares": shares,
        "smallest margin of normalised keys": min(margins),
        "angles": next(run["result"] for run in runs if run["settings"]["part"] == "angles"),
        "near, degrees": NEAR,
        "small": SMALL,
        "no eps": 0,
        "eps": 1e-5,
        "factors": list(geometry.FACTORS.values()),
        "table": table,
        "entries": len(in_table),
        "entries that agree": sum(agrees),
        "invariant": len(invariant),
        "invariant to the bit for a power of two": sum(one["power of two"] == EXACT for one in invariant),
        "invariant to the bit for another factor": sum(one["other factor"] == EXACT for one in invariant),
        "invariant with eps": sum(one["with eps"] < ROUNDING for one in invariant),
        "moved by eps, most": max(one["with eps"] for one in invariant),
        "moved by rounding, float64, most": max(one["float64"] for one in invariant),
        "moved by rounding, float32, most": max(one["float32"] for one in invariant),
        "moved where not invariant, least": min(
            table[norm][change]["float64"] for norm, change in in_table if table[norm][change]["other factor"] == NOT
        ),
    }


def judge(found: dict[str, Any]) -> dict[str, str]:
    shares, most, angle = found["shares"], found["most"], found["angles"]["degrees"]["before the norm"]
    plain = shares["plain"][most]["min"] > 0
    sphere = all(one["max"] == 0 for kind in ("layer", "layer, gamma of any sign") for one in shares[kind].values())
    zeros = any(one["max"] > 0 for one in shares["layer, half of gamma zero"].values())
    between = found["angles"]["layer norm from RMS norm, relative"]
    within = abs(angle["median"] - 90) < NEAR and between["median"] < SMALL
    always = abs(angle["min"] - 90) < NEAR and abs(angle["max"] - 90) < NEAR and between["max"] < SMALL
    agree = found["entries that agree"] == found["entries"]
    exact = agree and found["invariant with eps"] == found["invariant"]
    return {
        "keys": FAILS if not (plain and sphere) else CONDITIONS if zeros else HOLDS,
        "ones": HOLDS if always else CONDITIONS if within else FAILS,
        "table": HOLDS if exact else CONDITIONS if agree else FAILS,
    }


def figures(pyplot: Any, result: Any) -> dict[str, Any]:
    found = result["summary"]
    keys, axes = pyplot.subplots(figsize=(5.2, 3.4))
    places = range(len(found["numbers"]))
    for index, (kind, label) in enumerate(KEYS.items()):
        shares = [found["shares"][kind][str(number)] for number in found["numbers"]]
        _plots.band(
            axes,
            places,
            [{name: 100 * one[name] for name in ("median", "min", "max")} for one in shares],
            label,
            index,
        )
    axes.set_xticks(places, [str(number) for number in found["numbers"]])
    axes.set(xlabel="number of keys", ylabel="keys that no query selects, %", title=f"width {found['width']}")
    axes.legend()
    angles, axes = pyplot.subplots(figsize=(5.2, 3.4))
    measured = found["angles"]
    for index, (stage, counts) in enumerate(measured["histogram"].items()):
        axes.stairs(
            counts,
            measured["edges"],
            label=stage,
            color=_plots.COLOURS[index],
            fill=index == 0,
            alpha=0.5 if index == 0 else 1,
        )
    axes.set(xlabel="angle to the vector of ones, degrees", ylabel="rows", yscale="symlog")
    axes.legend(fontsize=7)
    return {"keys": keys, "angles": angles}


def write(page: Page) -> Mapping[str, str]:
    numbers = page.at("summary/numbers")
    page.say(
        "**Keys.** Standard normal keys of width {summary/width}. Whether a query exists that prefers a key to all others is a "
        "linear program (scipy's linprog with HiGHS), solved for each key. The share of keys for which there is none:"
    )
    page.table(
        ["keys", *(f"{{summary/numbers/{index}}} keys" for index in range(len(numbers)))],
        [
            [label, *(range_of(f"summary/shares/{kind}/{number}", ".1%") for number in numbers)]
            for kind, label in KEYS.items()
        ],
    )
    page.figure("keys", "Share of keys that no query selects, over the number of keys")
    angle = "summary/angles/degrees"
    page.say(
        "**Angles.** {summary/angles/rows} rows of {summary/angles/cols} columns: what goes into the first output norm of "
        "the MiniLM of examples/minilm. One model, one norm, four texts, padding included."
    )
    page.table(
        ["rows", "smallest", "lower quartile", "median", "upper quartile", "largest"],
        [
            [
                stage,
                *(
                    f"{{{angle}/{stage}/{name}:.2f}}°"
                    for name in ("min", "lower quartile", "median", "upper quartile", "max")
                ),
            ]
            for stage in page.at(angle)
        ],
    )
    page.figure("angles", "Angles to the vector of ones, before and after the norm")
    page.say(
        "**Table.** What x W^T is normalised to, before and after a change of W or x by the factors {summary/factors} (and shifts of as much), "
        "in float64 with eps = {summary/no eps}: “to the bit” and “up to rounding” as measured over the seeds. “Float64” and "
        "“float32” are the largest differences for the factor that is no power of two, “with eps” the same in float64 with eps = {summary/eps}."
    )
    page.table(
        ["norm", "change", "the paper", "power of two", "other factor", "float64", "float32", "with eps"],
        [
            [label, change, *(f"{{summary/table/{norm}/{change}/{name}{spec}}}" for name, spec in columns)]
            for norm, label in LABELS.items()
            for change in geometry.CHANGES
            for columns in [[("paper", ""), ("power of two", ""), ("other factor", ""), ("float64", ":.2g"), ("float32", ":.2g"),
                             ("with eps", ":.2g")]]
        ],
    )  # fmt: skip
    most = page.at("summary/most")
    return {
        "keys": f"Of {most_of(numbers)} keys, {range_of(f'summary/shares/plain/{most}', '.1%')} cannot be selected as they are, "
        f"{range_of(f'summary/shares/layer/{most}', '.1%')} after layer norm, the same with a gamma of any sign: "
        f"{range_of(f'summary/shares/layer, gamma of any sign/{most}', '.1%')}. Condition: no zero in gamma. Where half of it is "
        f"zero, {range_of(f'summary/shares/layer, half of gamma zero/{most}', '.1%')} cannot be. It is the sphere that does it, not the "
        f"mean: RMS norm leaves {range_of(f'summary/shares/rms/{most}', '.1%')}.",
        "ones": f"The median angle before the norm is {{{angle}/before the norm/median:.2f}}°, of all rows "
        f"{{{angle}/before the norm/min:.2f}}° to {{{angle}/before the norm/max:.2f}}° ({{summary/near, degrees:.0f}}° from a right "
        f"angle count as near). Standard normal numbers of that width have {{{angle}/standard normal numbers/min:.2f}}° to "
        f"{{{angle}/standard normal numbers/max:.2f}}°. Layer norm and RMS norm of these rows differ by "
        "{summary/angles/layer norm from RMS norm, relative/median:.2%} in the median, "
        "{summary/angles/layer norm from RMS norm, relative/max:.2%} at most (less than {summary/small:.0%} counts as nearly the same, "
        "and the condition, if any, is: for the median row). After gamma and beta the angle is "
        f"{{{angle}/after the norm/median:.2f}}° in the median.",
        "table": "{summary/entries that agree} of {summary/entries} entries are as the paper has them, with eps = "
        "{summary/no eps}: of the {summary/invariant} that are invariant, {summary/invariant to the bit for a power of two} are so to the bit "
        "where the change is a power of two, {summary/invariant to the bit for another factor} where it is not; the others up to "
        "{summary/moved by rounding, float64, most:.1e} in float64 and {summary/moved by rounding, float32, most:.1e} in "
        "float32. What is not invariant moves by {summary/moved where not invariant, least:.2g} or more. Condition: no eps. With eps = "
        "{summary/eps}, {summary/invariant with eps} of them stay, the others move by up to {summary/moved by eps, most:.1e}.",
    }


def most_of(numbers: list[int]) -> str:
    return f"{{summary/numbers/{len(numbers) - 1}}}"


SECTION = Section("geometry", "Geometry", CLAIMS, geometry.runs, geometry.run, summary, judge, figures, write)
