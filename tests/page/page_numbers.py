"""Numbers of the JSON line: their paths, their order on the page's stops, and whether a text shows one correctly."""

import math
import re
from decimal import ROUND_HALF_UP, Decimal

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
PLAIN = re.compile(r"-?\d+(?:\.(\d+))?")
POWER = re.compile(r"-?\d(?:\.(\d+))?e[+-]?\d+")
MANY = 48  # numbers shown at first; the rest on request


def at(data, path):
    """The value at a path such as rows/0/x/2. Raises KeyError if there is none."""
    value = data
    for key in path.split("/"):
        try:
            value = value[int(key) if isinstance(value, list) else key]
        except (IndexError, TypeError, ValueError) as error:
            raise KeyError(path) from error
    return value


def number(value):
    if isinstance(value, str):
        return SPECIAL[value]
    assert isinstance(value, (int, float)) and not isinstance(value, bool), value
    return value


def elements(data, path):
    """The paths of all numbers of the tensor, in C order. A trial leaves out its index."""
    value = at(data, path)
    if isinstance(value, dict):
        return [f"{path}/{key}" for key in value if not isinstance(value[key], list)]
    if not isinstance(value, list):
        return [path]
    return [deeper for i in range(len(value)) for deeper in elements(data, f"{path}/{i}")]


def stops(data, row):
    """The stops of the step slider on this row, as [(name, path of its tensor)]."""
    path = f"rows/{row}"
    values = at(data, path)
    found = [("x", f"{path}/x")]
    found += [(step["name"], f"{path}/steps/{k}/exact") for k, step in enumerate(values["steps"])]
    found.append(("own", f"{path}/y"))
    gradient = values.get("gradient")
    if gradient:
        found.append(("dy", f"{path}/gradient/dy"))
        found += [(step["name"], f"{path}/gradient/steps/{k}/exact") for k, step in enumerate(gradient["steps"])]
        found.append(("own-dx", f"{path}/gradient/dx"))
        if gradient["trial"]:
            found.append(("trial", f"{path}/gradient/trial"))
    return found


def rounded(value, step):
    """Rounds to a multiple of `step`, halves away from zero."""
    return Decimal(value).quantize(step, rounding=ROUND_HALF_UP)


def shows(text, value, decimals=4):
    """True if the text is the value rounded to the text's digits, and has enough digits: `decimals` places, or a power
    of ten and as many significant digits (except trailing zeros), or all digits of the value."""
    if math.isnan(value):
        return text == "NaN"
    if math.isinf(value):
        return text == ("∞" if value > 0 else "−∞")
    if "-" in text or text.startswith("−0") and not re.search("[1-9]", text):
        return False  # minus signs are not hyphens, and zero has none
    plain = text.replace("−", "-")
    for pattern, form in ((PLAIN, False), (POWER, True)):
        match = pattern.fullmatch(plain)
        if not match:
            continue
        places = len(match[1] or "")
        shown = Decimal(plain)
        exponent = shown.adjusted() if form and shown else 0
        if shown != rounded(value, Decimal(1).scaleb(exponent - places)):
            return False
        if float(shown) == value:  # all digits of the value
            return True
        return places >= decimals or bool(
            form and (places >= 3 or rounded(value, Decimal(1).scaleb(exponent - 3)) == shown)
        )
    return False
