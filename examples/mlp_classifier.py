"""A two-layer perceptron tells code, comments and documentation apart, line by line.

    python examples/mlp_classifier.py [--steps 600] [--plot FILE]

The data are the sources of Python's own standard library, so they are on every machine and nothing is downloaded. Each
line, without its indentation and a comment's `#`, becomes a vector of how often each pair of characters occurs in it.
Whole modules are held out for the test. Training is momentum descent on mini-batches; the program ends with train and
test accuracy beside that of always guessing the commonest kind, a confusion matrix, and lines that it got wrong.
"""

from __future__ import annotations

import argparse
import ast
import io
import pathlib
import sysconfig
import tokenize
from typing import Any

import numpy as np
import plots

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import nn, random

KINDS = ["code", "comment", "documentation"]
FEATURES = 1024


# --- the data ----------------------------------------------------------------------------------------


def docstring_lines(tree: ast.AST) -> set[int]:
    """The numbers of the lines that docstrings stand on."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False):
            lines.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return lines


def labelled_lines(path: pathlib.Path) -> list[tuple[str, int]]:
    """The text and the kind of each line that is of one kind alone and long enough to tell."""
    source = path.read_text(encoding="utf-8")
    documentation = docstring_lines(ast.parse(source))
    comments = {token.start[0] for token in tokenize.generate_tokens(io.StringIO(source).readline)
                if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")}  # fmt: skip
    found = []
    for number, line in enumerate(source.splitlines(), 1):
        kind = 2 if number in documentation else 1 if number in comments else 0
        text = line.strip().strip("#\"'").strip()
        if len(text) >= 10 and (kind or "#" not in text):
            found.append((text, kind))
    return found


def features(lines: list[str]) -> np.ndarray:
    """How often each pair of characters occurs, hashed into FEATURES bins, each row of length 1."""
    rows = np.zeros((len(lines), FEATURES), np.float32)
    for row, line in zip(rows, lines, strict=True):
        codes = np.frombuffer(f" {line} ".encode("ascii", "replace"), np.uint8).astype(np.int64)
        row[:] = np.bincount((codes[:-1] * 67 + codes[1:]) % FEATURES, minlength=FEATURES)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def read_data(modules: int) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """The lines of the first so many modules of the standard library: for training, and of every fifth for the test."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(folder.glob("*.py"))[:modules]
    train, test = [], []
    for number, path in enumerate(paths):
        (test if number % 5 == 4 else train).extend(labelled_lines(path))
    return train, test


# --- the model ---------------------------------------------------------------------------------------


def init(key: Any, sizes: list[int]) -> list[dict[str, Any]]:
    """One matrix and one bias per layer, drawn as He et al. (2015) propose for rectified units."""
    draw = nn.initializers.he_normal()
    keys = random.split(key, len(sizes) - 1)
    return [{"weights": draw(each, (fan_in, fan_out)), "bias": jnp.zeros(fan_out)}
            for each, fan_in, fan_out in zip(keys, sizes[:-1], sizes[1:], strict=True)]  # fmt: skip


def logits(params: Any, x: Any) -> Any:
    *hidden, last = params
    for layer in hidden:
        x = nn.relu(x @ layer["weights"] + layer["bias"])
    return x @ last["weights"] + last["bias"]


def loss(params: Any, x: Any, kinds: Any) -> Any:
    """The mean cross entropy, and a little for large weights."""
    cross_entropy = -jnp.mean(jnp.sum(nn.one_hot(kinds, len(KINDS)) * nn.log_softmax(logits(params, x)), axis=1))
    return cross_entropy + 1e-4 * sum(jnp.sum(layer["weights"] ** 2) for layer in params)


@jaxlite.jit
def update(params: Any, velocity: Any, x: Any, kinds: Any, rate: Any) -> tuple[Any, Any, Any]:
    value, gradients = jaxlite.value_and_grad(loss)(params, x, kinds)
    velocity = jaxlite.tree.map(lambda v, g: 0.9 * v - rate * g, velocity, gradients)
    return jaxlite.tree.map(jnp.add, params, velocity), velocity, value


@jaxlite.jit
def probabilities(params: Any, x: Any) -> Any:
    return nn.softmax(logits(params, x))


# --- training ----------------------------------------------------------------------------------------


def fit(train: Any, test: Any, steps: int, size: int = 256) -> tuple[Any, list[float]]:
    """Parameters trained on (features, kinds), and the loss at each step."""
    params = init(random.key(0), [FEATURES, 128, len(KINDS)])
    velocity = jaxlite.tree.map(jnp.zeros_like, params)
    rng = np.random.default_rng(0)
    curve = []
    for number in range(steps):
        rows = rng.integers(0, len(train[0]), size)
        rate = np.float32(0.5 * (1 - number / steps))
        params, velocity, value = update(params, velocity, train[0][rows], train[1][rows], rate)
        curve.append(float(value))
        if number % max(1, steps // 10) == 0 or number == steps - 1:
            mean = np.mean(curve[-20:])
            print(f"  step {number:4d}  loss {mean:6.3f}  test accuracy {accuracy(params, test):.1%}", flush=True)
    return params, curve


def accuracy(params: Any, data: Any) -> float:
    return float(np.mean(np.argmax(probabilities(params, data[0]), axis=1) == data[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--modules", type=int, default=100, help="how many modules of the standard library to read")
    parser.add_argument("--plot", metavar="FILE", help="where to write the PNG; default: a new temporary folder")
    arguments = parser.parse_args()
    lines = read_data(arguments.modules)
    train, test = ((features([text for text, _ in part]), np.array([kind for _, kind in part])) for part in lines)
    print(f"{len(train[1])} lines to learn from, {len(test[1])} lines of other modules to test on")
    params, curve = fit(train, test, arguments.steps)

    shares = np.bincount(test[1], minlength=len(KINDS)) / len(test[1])
    print(f"\n  accuracy: train {accuracy(params, train):.1%}, test {accuracy(params, test):.1%}; ", end="")
    print(f"always guessing {KINDS[int(shares.argmax())]} would give {shares.max():.1%}\n")
    chances = np.asarray(probabilities(params, test[0]))
    guesses = chances.argmax(axis=1)
    confusion = np.zeros((len(KINDS), len(KINDS)), int)
    np.add.at(confusion, (test[1], guesses), 1)
    print("  " + "".join(f"{word:>15}" for word in ["is \\ taken for", *KINDS]))
    for kind, row in zip(KINDS, confusion, strict=True):
        print(f"  {kind:>15}" + "".join(f"{count:15d}" for count in row))
    print("\n  The surest mistakes:")
    wrong = np.flatnonzero(guesses != test[1])
    for row in wrong[np.argsort(-chances[wrong].max(axis=1), kind="stable")][:8]:
        text, kind = lines[1][row]
        print(f"    {KINDS[kind]:>13} taken for {KINDS[guesses[row]]:13} ({chances[row].max():4.0%})  {text[:70]}")

    def draw(figure: Any) -> None:
        losses, matrix = figure.subplots(1, 2)
        losses.plot(curve)
        losses.set(xlabel="step", ylabel="loss")
        matrix.imshow(confusion / confusion.sum(axis=1, keepdims=True), cmap="Blues", vmin=0, vmax=1)
        matrix.set(xlabel="taken for", ylabel="is", title="share of the lines of each kind")
        matrix.set_xticks(range(len(KINDS)), KINDS)
        matrix.set_yticks(range(len(KINDS)), KINDS)
        for (row, column), count in np.ndenumerate(confusion):
            share = count / confusion[row].sum()
            matrix.text(column, row, f"{share:.0%}", ha="center", color="white" if share > 0.5 else "black")

    plots.save(draw, arguments.plot, "mlp_classifier", size=(10, 4.5))


if __name__ == "__main__":
    main()
