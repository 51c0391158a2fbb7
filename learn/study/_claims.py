"""Claims and their verdicts."""

from dataclasses import dataclass

HOLDS = "holds"
CONDITIONS = "holds under conditions"
FAILS = "does not hold here"
BA = "Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450 (2016)"
XIONG = "Xiong et al., On Layer Normalization in the Transformer Architecture, arXiv:2002.04745 (2020)"


@dataclass(frozen=True)
class Claim:
    """What a text claims, in our words, and its source. `Section.judge` computes the verdict."""

    name: str
    text: str
    source: str


def extent(hits: int, cases: int) -> str:
    """The verdict on a claim that is true in `hits` of the cases."""
    return FAILS if not hits else HOLDS if hits == cases else CONDITIONS
