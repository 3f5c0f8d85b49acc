"""A variational autoencoder (Kingma & Welling 2013) of hand-drawn digits, with two latent numbers per picture.

    python examples/vae.py [--steps 2000] [--plot FILE]

The digits are drawn here: the strokes of each figure, wobbled, slanted, scaled and shifted at random, are rendered by
their distance to each pixel. The encoder gives each picture a normal distribution over a plane, the decoder draws a picture
for each point of the plane, and both are trained to maximise the evidence lower bound, through a random draw whose key is
an argument. It ends with pictures that the test saw and their reconstructions, and a map of what the plane means.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import plots
from char_gpt import adam

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import nn, random

SIDE = 16
LATENT = 2

# --- the data: figures as polylines in the unit square, y downwards ---------------------------------------

FIGURES = [
    [(0.5, 0), (0.15, 0.2), (0.1, 0.6), (0.3, 0.95), (0.6, 0.98), (0.85, 0.7), (0.88, 0.35), (0.75, 0.08), (0.5, 0)],
    [(0.3, 0.2), (0.55, 0), (0.55, 0.5), (0.55, 1)],
    [(0.12, 0.2), (0.4, 0), (0.75, 0.08), (0.82, 0.3), (0.6, 0.6), (0.1, 1), (0.9, 1)],
    [(0.15, 0.05), (0.6, 0), (0.8, 0.2), (0.65, 0.42), (0.4, 0.48), (0.75, 0.55), (0.88, 0.78), (0.6, 1), (0.12, 0.92)],
    [(0.6, 0), (0.1, 0.65), (0.92, 0.65), (0.7, 0.65), (0.7, 0.3), (0.7, 1)],
    [(0.85, 0), (0.25, 0), (0.2, 0.42), (0.6, 0.4), (0.87, 0.65), (0.7, 0.95), (0.4, 1), (0.12, 0.9)],
    [(0.7, 0), (0.3, 0.3), (0.12, 0.7), (0.35, 1), (0.7, 0.97), (0.85, 0.7), (0.6, 0.5), (0.2, 0.65)],
    [(0.1, 0.02), (0.9, 0.02), (0.6, 0.5), (0.4, 1)],
    [(0.5, 0.47), (0.2, 0.25), (0.45, 0), (0.8, 0.2), (0.5, 0.47), (0.12, 0.75), (0.45, 1), (0.85, 0.75), (0.5, 0.47)],
    [(0.82, 0.3), (0.5, 0.5), (0.18, 0.3), (0.4, 0.02), (0.75, 0.08), (0.82, 0.3), (0.75, 0.7), (0.55, 1)],
]


def resample(points: list[tuple[float, float]], count: int = 17) -> np.ndarray:
    """So many points at equal distances along a polyline."""
    corners = np.array(points)
    along = np.append(0, np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1)))
    return np.stack([np.interp(np.linspace(0, along[-1], count), along, each) for each in corners.T], axis=1)


def draw_digit(key: Any, stroke: Any) -> Any:
    """One picture of a stroke, f32[points,2] -> f32[SIDE*SIDE], by the hand that the key stands for."""
    for_wobble, for_shape, for_shift, for_pen = random.split(key, 4)
    wobble = random.normal(for_wobble, (4, 2)) * 0.03  # the first waves of a sine series: neighbours move alike
    waves = jnp.sin(jnp.pi * jnp.linspace(0, 1, len(stroke))[:, None] * jnp.arange(1, 5))
    shape = jnp.eye(2) * 0.6 + random.uniform(for_shape, (2, 2), minval=-0.09, maxval=0.09)
    shift = random.uniform(for_shift, (2,), minval=-0.04, maxval=0.04)
    points = (stroke - 0.5 + waves @ wobble) @ shape + 0.5 + shift
    pen = random.uniform(for_pen, minval=0.03, maxval=0.045)

    center = (jnp.arange(SIDE) + 0.5) / SIDE
    y, x = jnp.meshgrid(center, center, indexing="ij")
    pixels = jnp.stack([x.ravel(), y.ravel()], axis=1)
    start, step = points[:-1], points[1:] - points[:-1]
    offset = pixels[:, None, :] - start
    along = jnp.clip(jnp.sum(offset * step, axis=-1) / jnp.sum(step**2, axis=-1), 0, 1)
    distance = jnp.min(jnp.linalg.norm(offset - along[..., None] * step, axis=-1), axis=1)
    return nn.sigmoid((pen - distance) / 0.012)


@jaxlite.jit
def draw_digits(keys: Any, digits: Any) -> Any:
    strokes = jnp.asarray(np.stack([resample(points) for points in FIGURES]), jnp.float32)
    return jaxlite.vmap(draw_digit)(keys, strokes[digits])


def draw_data(key: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures and the digits that they show, each digit as often as the others."""
    digits = np.arange(count) % len(FIGURES)
    return np.asarray(draw_digits(random.split(key, count), digits)), digits


# --- the model ---------------------------------------------------------------------------------------


def init_network(key: Any, sizes: list[int]) -> list[dict[str, Any]]:
    draw = nn.initializers.glorot_normal()
    keys = random.split(key, len(sizes) - 1)
    return [{"weights": draw(each, shape), "bias": jnp.zeros(shape[1])}
            for each, shape in zip(keys, zip(sizes[:-1], sizes[1:], strict=True), strict=True)]  # fmt: skip


def network(layers: Any, x: Any) -> Any:
    *hidden, last = layers
    for layer in hidden:
        x = nn.gelu(x @ layer["weights"] + layer["bias"])
    return x @ last["weights"] + last["bias"]


def encode(params: Any, pictures: Any) -> tuple[Any, Any]:
    """The mean and the logarithm of the standard deviation of the latent numbers."""
    return jnp.split(network(params["encoder"], pictures), 2, axis=-1)


def decode(params: Any, latent: Any) -> Any:
    """The probability of ink at each pixel."""
    return nn.sigmoid(network(params["decoder"], latent))


def loss(params: Any, key: Any, pictures: Any) -> tuple[Any, Any]:
    """The negative evidence lower bound in nats per picture, and its two parts: reconstruction and divergence."""
    mean, log_deviation = encode(params, pictures)
    latent = mean + jnp.exp(log_deviation) * random.normal(key, mean.shape)
    scores = network(params["decoder"], latent)
    reconstruction = jnp.sum(nn.softplus(scores) - pictures * scores, axis=-1).mean()
    divergence = 0.5 * jnp.sum(mean**2 + jnp.exp(2 * log_deviation) - 2 * log_deviation - 1, axis=-1).mean()
    return reconstruction + divergence, (reconstruction, divergence)


@jaxlite.jit
def update(params: Any, state: Any, key: Any, data: Any, rate: Any) -> tuple[Any, Any, Any]:
    for_rows, for_latent = random.split(key)
    pictures = data[random.randint(for_rows, (128,), 0, len(data))]
    (value, _), gradients = jaxlite.value_and_grad(loss, has_aux=True)(params, for_latent, pictures)
    return *adam(params, gradients, state, rate), value


def fit(data: Any, test: Any, steps: int, width: int = 256, seed: int = 0) -> tuple[Any, list[float]]:
    for_encoder, for_decoder, for_steps, for_test = random.split(random.key(seed), 4)
    params = {
        "encoder": init_network(for_encoder, [SIDE * SIDE, width, width, 2 * LATENT]),
        "decoder": init_network(for_decoder, [LATENT, width, width, SIDE * SIDE]),
    }
    state = (*(jaxlite.tree.map(jnp.zeros_like, params) for _ in range(2)), jnp.zeros(()))
    evaluate = jaxlite.jit(loss)
    curve = []
    for number in range(steps):
        rate = np.float32(2e-3 * (1 - number / steps))
        params, state, value = update(params, state, random.fold_in(for_steps, number), data, rate)
        curve.append(value)
        if number % max(1, steps // 10) == 0 or number == steps - 1:
            held_out, (reconstruction, divergence) = evaluate(params, for_test, test)
            print(f"  step {number:4d}  loss {value:6.2f}  test {held_out:6.2f} "
                  f"(reconstruction {reconstruction:6.2f}, divergence {divergence:5.2f})", flush=True)
    return params, [float(value) for value in curve]


# --- what came of it ---------------------------------------------------------------------------------


def side_by_side(pictures: Any) -> str:
    """Pictures as text, in a row; two pixels' rows share a line."""
    shades = np.array(list(" .:*#"))
    images = np.asarray(pictures).reshape(-1, SIDE, SIDE)
    images = (images[:, ::2] + images[:, 1::2]) / 2
    lines = shades[np.clip(images * len(shades), 0, len(shades) - 1).astype(int)]
    return "\n".join("  " + " ".join("".join(line) for line in row) for row in lines.swapaxes(0, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--pictures", type=int, default=5000, help="how many to draw; a fifth of them is the test")
    parser.add_argument("--plot", metavar="FILE", help="where to write the PNG; default: a new temporary folder")
    arguments = parser.parse_args()
    pictures, digits = draw_data(random.key(1), arguments.pictures)
    (test, data), digits = np.split(pictures, [len(pictures) // 5]), digits[: len(pictures) // 5]
    params, curve = fit(data, test, arguments.steps)

    mean, _ = encode(params, test)
    shown = decode(params, mean[:10])
    print("\nPictures of the test, and what two numbers keep of each:\n")
    for half in (slice(0, 5), slice(5, 10)):
        print(side_by_side(test[half]), side_by_side(shown[half]), sep="\n")
    ticks = np.linspace(2, -2, 15)
    plane = np.stack(np.meshgrid(ticks[::-1], ticks), axis=-1).reshape(-1, LATENT).astype(np.float32)
    tiles = np.asarray(decode(params, plane)).reshape(15, 15, SIDE, SIDE).swapaxes(1, 2).reshape(15 * SIDE, 15 * SIDE)

    def draw(figure: Any) -> None:
        drawn, spread, losses = figure.subplots(1, 3)
        drawn.imshow(tiles, cmap="gray_r", extent=(-2.13, 2.13, -2.13, 2.13))
        drawn.set(title="what the decoder draws across the plane")
        points = spread.scatter(*np.asarray(mean).T, c=digits, cmap="tab10", vmin=-0.5, vmax=9.5, s=5)
        spread.set(title="where the encoder puts the test's digits", aspect="equal")
        figure.colorbar(points, ax=spread, ticks=range(10), fraction=0.046)
        losses.plot(curve)
        losses.set(xlabel="step", ylabel="loss (nats per picture)")

    plots.save(draw, arguments.plot, "vae", size=(15, 5))


if __name__ == "__main__":
    main()
