"""A character-level GPT, trained on a text file: model, Adam and sampling in one file.

    python examples/char_gpt.py [FILE] [--steps 300] [--layers 2]

Without a file it learns this repository's own documents. It prints the loss as it goes, then the loss on the last tenth
of the text, which it has not seen, a sample, and where the time went. The learning-rate schedule and Adam are written
here; nothing but jaxlite and NumPy is used.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from typing import Any

started = time.perf_counter()

import numpy as np  # noqa: E402

import jaxlite  # noqa: E402
import jaxlite.numpy as jnp  # noqa: E402
from jaxlite import lax, nn, random  # noqa: E402

import_seconds = time.perf_counter() - started


def read_text(path: str | None) -> str:
    """The text to learn: a file, or the documents of this repository."""
    if path:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    root = pathlib.Path(__file__).resolve().parent.parent
    files = [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").glob("*.md"))]
    return "\n".join(file.read_text(encoding="utf-8") for file in files if file.exists())


# --- the model ---------------------------------------------------------------------------------------


def init_params(key: Any, vocabulary: int, width: int, layers: int) -> dict[str, Any]:
    """Weights: normal with standard deviation 0.1, those that add to the residual stream smaller."""
    keys = iter(random.split(key, 1 + 4 * layers))

    def draw(*shape: int, scale: float = 0.1) -> Any:
        return scale * random.normal(next(keys), shape)

    small = 0.1 / np.sqrt(2 * layers)
    return {
        "embed": draw(vocabulary, width),
        "blocks": [
            {"attend": draw(width, 3 * width), "project": draw(width, width, scale=small), "up": draw(width, 4 * width),
             "down": draw(4 * width, width, scale=small), "scale1": jnp.ones(width), "scale2": jnp.ones(width)}
            for _ in range(layers)
        ],
        "scale": jnp.ones(width),
    }  # fmt: skip


def rms_norm(x: Any, scale: Any) -> Any:
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def rotate(x: Any) -> Any:
    """Rotary position embedding (Su et al. 2021): turn pairs of numbers by angles that grow with the position."""
    length, half = x.shape[1], x.shape[-1] // 2
    angle = jnp.arange(length)[:, None, None] * 100.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def block(params: dict[str, Any], x: Any, heads: int) -> Any:
    """One transformer block: causal self-attention, then a feed-forward layer, each added to its input."""
    batch, length, width = x.shape
    q, k, v = jnp.split(rms_norm(x, params["scale1"]) @ params["attend"], 3, axis=-1)
    q, k, v = (part.reshape(batch, length, heads, width // heads) for part in (q, k, v))
    attended = nn.dot_product_attention(rotate(q), rotate(k), v, is_causal=True).reshape(batch, length, width)
    x = x + attended @ params["project"]
    return x + nn.gelu(rms_norm(x, params["scale2"]) @ params["up"]) @ params["down"]


def logits(params: dict[str, Any], tokens: Any, heads: int) -> Any:
    """For each position the scores of the next character."""
    x = params["embed"][tokens]
    for each in params["blocks"]:
        x = block(each, x, heads)
    return rms_norm(x, params["scale"]) @ params["embed"].T


def loss(params: dict[str, Any], tokens: Any, targets: Any, heads: int) -> Any:
    """The mean negative log-likelihood of the next characters, in nats."""
    scores = nn.log_softmax(logits(params, tokens, heads))
    return -jnp.mean(jnp.take_along_axis(scores, targets[..., None], axis=-1))


# --- training ----------------------------------------------------------------------------------------


def adam(params: Any, gradients: Any, state: Any, rate: Any) -> tuple[Any, Any]:
    """One step of Adam (Kingma & Ba 2014)."""
    first, second, count = state
    count = count + 1
    first = jaxlite.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jaxlite.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)
    scale1, scale2 = 1 / (1 - 0.9**count), 1 / (1 - 0.99**count)
    params = jaxlite.tree.map(lambda p, m, v: p - rate * m * scale1 / (jnp.sqrt(v * scale2) + 1e-8), params, first, second)
    return params, (first, second, count)


def train_step(params: Any, state: Any, tokens: Any, targets: Any, rate: Any, heads: int) -> tuple[Any, Any, Any]:
    value, gradients = jaxlite.value_and_grad(loss)(params, tokens, targets, heads)
    params, state = adam(params, gradients, state, rate)
    return params, state, value


def batches(data: np.ndarray, size: int, context: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    while True:
        starts = rng.integers(0, len(data) - context - 1, size)
        rows = data[starts[:, None] + np.arange(context + 1)]
        yield rows[:, :-1], rows[:, 1:]


def sample(params: Any, prompt: np.ndarray, count: int, context: int, heads: int, seed: int = 1) -> np.ndarray:
    """Continue a text character by character, all in one compiled loop."""

    def generate(params: Any, window: Any, key: Any) -> Any:
        def step(carry: Any, key: Any) -> Any:
            scores = logits(params, carry[None], heads)[0, -1]
            token = random.categorical(key, scores / 0.8)
            return jnp.concatenate([carry[1:], token[None].astype(carry.dtype)]), token

        return lax.scan(step, window, random.split(key, count))[1]

    window = np.resize(prompt, context).astype(np.int32)
    return np.asarray(jaxlite.jit(generate)(params, window, random.key(seed)))


def train(text: str, steps: int = 300, layers: int = 2, width: int = 96, heads: int = 4, context: int = 64,
          size: int = 16) -> list[float]:  # fmt: skip
    """Train on all but the last tenth of a text, say how it went, and return the loss of each step."""
    times = Stopwatch()
    characters = sorted(set(text))
    index = {char: position for position, char in enumerate(characters)}
    data = np.array([index[char] for char in text], np.int32)
    data, unseen = np.split(data, [len(data) * 9 // 10])
    if len(unseen) < context + 2:
        raise SystemExit(f"the text has {len(text)} characters; it takes {10 * (context + 2)} at least")
    params = jaxlite.jit(init_params, static_argnums=(1, 2, 3))(random.key(0), len(characters), width, layers)
    state = (*(jaxlite.tree.map(jnp.zeros_like, params) for _ in range(2)), jnp.zeros(()))
    count = sum(leaf.size for leaf in jaxlite.tree.leaves(params))
    print(f"{len(text)} characters, {len(characters)} different; {layers} layers, {count} parameters", flush=True)
    stream = batches(data, size, context)
    tokens, targets = next(stream)
    times.lap("data and parameters")

    step = jaxlite.jit(train_step, static_argnames="heads", donate_argnums=(0, 1))
    traced = step.trace(params, state, tokens, targets, np.float32(0), heads=heads)
    times.lap("trace")
    lowered = traced.lower()
    times.lap("lower")
    compiled = lowered.compile()
    times.lap("compile")

    curve: list[Any] = []
    for number in range(steps):
        rate = np.float32(6e-3 * min(1, (number + 1) / 20) * (0.5 + 0.5 * np.cos(np.pi * number / steps)))
        params, state, value = compiled(params, state, tokens, targets, rate)
        tokens, targets = next(stream)
        curve.append(value)
        if number % max(1, steps // 16) == 0 or number == steps - 1:
            mean = float(np.mean([float(each) for each in curve[-10:]]))
            print(f"  step {number:4d}  loss {mean:5.3f}  {'#' * int(12 * mean)}", flush=True)
    times.lap(f"{steps} steps")

    tokens, targets = next(batches(unseen, 8 * size, context))
    value = float(jaxlite.jit(loss, static_argnames="heads")(params, tokens, targets, heads=heads))
    print(f"\nThe loss on the last tenth of the text, which it has not seen: {value:.3f} nats, {value / np.log(2):.2f} bits a "
          f"character\n(guessing all alike would be {np.log2(len(characters)):.2f} bits)")
    times.lap("loss on unseen text")
    drawn = sample(params, data[:context], 300, context, heads)
    print("\nA sample:\n\n  " + "".join(characters[token] for token in drawn).replace("\n", "\n  "))
    times.lap("sample")
    print(f"\nWhere the time went:\n\n{times.table()}")
    return [float(value) for value in curve]


class Stopwatch:
    """Seconds by what they were spent on, the import of jaxlite first."""

    def __init__(self) -> None:
        self.seconds = {"import": import_seconds}
        self.before = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name], self.before = now - self.before, now

    def table(self) -> str:
        whole = sum(self.seconds.values())
        rows = [f"  {name:20} {each:6.2f} s  {'#' * round(50 * each / whole)}" for name, each in self.seconds.items()]
        return "\n".join([*rows, f"  {'all':20} {whole:6.2f} s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", help="a text file; default: this repository's documents")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--layers", type=int, default=2)
    arguments = parser.parse_args()
    train(read_text(arguments.file), arguments.steps, arguments.layers)


if __name__ == "__main__":
    main()
