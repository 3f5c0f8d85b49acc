"""Steps of programs written with JAX's libraries: `python -m benchmarks.paired --source benchmarks.library_programs all`.

What libraries make of a few lines is unlike what people write with `jax.numpy`: updates of many small arrays, runtime checks by
callbacks, loops within conversions of trees. They found what the programs of `benchmarks.written` had not.

Both sides need the libraries, jaxlite's without jax: those of `make test-libraries` are enough for most, and PYTHONPATH may
lead to more (diffrax, optimistix, jaxopt, haiku, blackjax, dynamax, jraph, gymnax, mctx). A name that ends in `*` means all
programs that begin so.

    PYTHONPATH=$(.venv-libraries/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \\
      python -m benchmarks.paired --source benchmarks.library_programs 'optax_*' equinox_lstm \\
      --python .venv-libraries/bin/python --jax-python .venv-jax/bin/python
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.programs import Frontend, Made, Program

OPTIMIZERS = ("adamw", "lamb", "lion", "adafactor", "adabelief", "radam", "novograd", "yogi", "rmsprop", "sm3", "nadamw",
              "amsgrad", "lars")
CONTRIBUTED = ("muon", "prodigy", "schedule_free_adamw", "dadapt_adamw", "ademamix", "acprop")
_RATE_OF_ITS_OWN = ("prodigy", "dadapt_adamw")
PROGRAMS: dict[str, Callable[..., Made]] = {}
_random = np.random.default_rng(0)


def make(name: str) -> Program:
    """A program by its name: of `jax`, which is jaxlite where that is asked for, a function and its arguments."""

    def made(ns: Frontend) -> Made:
        if ns.jax.__name__ == "jaxlite":
            import jaxlite.as_jax  # noqa: F401
        import jax
        import jax.numpy as jnp

        return PROGRAMS[name](jax, jnp)

    return made


def expand(name: str) -> list[str]:
    """The names of the programs that a name means."""
    if name == "all":
        return list(PROGRAMS)
    return [each for each in PROGRAMS if each.startswith(name[:-1])] if name.endswith("*") else [name]


def program(function: Callable[..., Made], name: str = "") -> Callable[..., Made]:
    PROGRAMS[name or function.__name__] = function
    return function


def normal(*shape: int) -> np.ndarray:
    return _random.standard_normal(shape).astype(np.float32)


def integers(high: int, *shape: int) -> np.ndarray:
    return _random.integers(0, high, shape).astype(np.int32)


# --- optax -------------------------------------------------------------------------------------------


def _network_step(jax: Any, jnp: Any, optimizer: Any) -> Made:
    """A step of a classifier with two hidden layers."""
    import optax

    sizes = (32, 64, 64, 8)
    params = [(normal(a, b) / np.float32(np.sqrt(a)), np.zeros(b, np.float32)) for a, b in zip(sizes, sizes[1:], strict=False)]

    def loss(params: Any, x: Any, y: Any) -> Any:
        for weight, bias in params[:-1]:
            x = jnp.tanh(x @ weight + bias)
        return optax.softmax_cross_entropy_with_integer_labels(x @ params[-1][0] + params[-1][1], y).mean()

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    return step, (params, optimizer.init(params), normal(128, sizes[0]), integers(sizes[-1], 128))


def _named_optimizer(jax: Any, jnp: Any, name: str) -> Made:
    import optax
    import optax.contrib

    kind = getattr(optax, name, None) or getattr(optax.contrib, name)
    return _network_step(jax, jnp, kind() if name in _RATE_OF_ITS_OWN else kind(1e-3))


for _name in (*OPTIMIZERS, *CONTRIBUTED):
    program(functools.partial(_named_optimizer, name=_name), f"optax_{_name}")


@program
def optax_chain(jax: Any, jnp: Any) -> Made:
    import optax

    rate = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100)
    return _network_step(jax, jnp, optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam(),
                                               optax.add_decayed_weights(1e-4), optax.scale_by_schedule(rate)))


@program
def optax_lbfgs(jax: Any, jnp: Any) -> Made:
    import optax

    def valley(x: Any) -> Any:
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    optimizer, slope = optax.lbfgs(), optax.value_and_grad_from_state(valley)

    def step(carry: Any, _: Any) -> Any:
        x, state = carry
        value, grad = slope(x, state=state)
        updates, state = optimizer.update(grad, state, x, value=value, grad=grad, value_fn=valley)
        return (optax.apply_updates(x, updates), state), value

    return lambda x: jax.lax.scan(step, (x, optimizer.init(x)), None, length=10)[1], (np.zeros(20, np.float32),)


@program
def optax_ctc(jax: Any, jnp: Any) -> Made:
    import optax

    paddings = np.zeros((8, 50), np.float32), np.zeros((8, 10), np.float32)
    return (jax.grad(lambda logits, labels: optax.ctc_loss(logits, paddings[0], labels, paddings[1]).mean()),
            (normal(8, 50, 20), integers(19, 8, 10) + 1))


# --- equinox -----------------------------------------------------------------------------------------


def _module_step(jax: Any, model: Any, loss: Callable[..., Any], *data: Any) -> Made:
    """A step of Adam for the arrays of a module of equinox."""
    import equinox
    import optax

    optimizer = optax.adam(1e-3)
    params, static = equinox.partition(model, equinox.is_inexact_array)

    def step(params: Any, state: Any, *data: Any) -> Any:
        value, grads = jax.value_and_grad(lambda params: loss(equinox.combine(params, static), *data))(params)
        updates, state = optimizer.update(grads, state, params)
        return equinox.apply_updates(params, updates), state, value

    return step, (params, optimizer.init(params), *data)


@program
def equinox_mlp(jax: Any, jnp: Any) -> Made:
    import equinox

    return _module_step(jax, equinox.nn.MLP(16, 4, 128, 3, key=jax.random.key(0)),
                        lambda model, x, y: ((jax.vmap(model)(x) - y) ** 2).mean(), normal(256, 16), normal(256, 4))


@program
def equinox_convolutions(jax: Any, jnp: Any) -> Made:
    import equinox.nn as nn

    keys = jax.random.split(jax.random.key(0), 3)
    model = nn.Sequential([
        nn.Conv2d(1, 8, 4, key=keys[0]), nn.MaxPool2d(2), nn.Lambda(jax.nn.relu), nn.Conv2d(8, 8, 3, key=keys[1]),
        nn.GroupNorm(4, 8), nn.Lambda(jnp.ravel), nn.Linear(3872, 10, key=keys[2]), nn.Lambda(jax.nn.log_softmax)])
    return _module_step(jax, model, lambda model, x, y: -jnp.take_along_axis(jax.vmap(model)(x), y[:, None], 1).mean(),
                        normal(16, 1, 28, 28), integers(10, 16))


@program
def equinox_attention(jax: Any, jnp: Any) -> Made:
    import equinox.nn as nn

    keys = jax.random.split(jax.random.key(0))
    attention = nn.MultiheadAttention(4, 32, key=keys[0])
    inner = nn.MLP(32, 32, 64, 1, activation=jax.nn.gelu, key=keys[1])

    def loss(parts: Any, x: Any) -> Any:
        attention, inner, *norms = parts

        def block(x: Any) -> Any:
            y = jax.vmap(norms[0])(x)
            x = x + attention(y, y, y)
            return x + jax.vmap(lambda row: inner(norms[1](row)))(x)

        return (jax.vmap(block)(x) ** 2).mean()

    return _module_step(jax, [attention, inner, nn.LayerNorm(32), nn.LayerNorm(32)], loss, normal(8, 24, 32))


@program
def equinox_lstm(jax: Any, jnp: Any) -> Made:
    import equinox.nn as nn

    def loss(cell: Any, x: Any, y: Any) -> Any:
        def last(x: Any) -> Any:
            start = jnp.zeros(32), jnp.zeros(32)
            return jax.lax.scan(lambda state, row: (cell(row, state), None), start, x)[0][0].sum()

        return ((jax.vmap(last)(x) - y) ** 2).mean()

    return _module_step(jax, nn.LSTMCell(8, 32, key=jax.random.key(0)), loss, normal(32, 40, 8), normal(32))


# --- flax --------------------------------------------------------------------------------------------


def _linen_step(jax: Any, model: Any, loss: Callable[..., Any], *data: Any) -> Made:
    """A step of AdamW for a module of flax.linen; `loss` gives a value and new statistics of what applies the module."""
    import optax

    state = model.init(jax.random.key(0), data[0])
    params, optimizer = state.pop("params"), optax.adamw(1e-3)

    def step(params: Any, moments: Any, state: Any, *data: Any) -> Any:
        (value, new), grads = jax.value_and_grad(lambda params: loss(
            functools.partial(model.apply, {"params": params, **state}), *data), has_aux=True)(params)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, new, value

    return step, (params, optimizer.init(params), state, *data)


def _classified(apply: Callable[..., Any], x: Any, labels: Any) -> Any:
    import optax

    return optax.softmax_cross_entropy_with_integer_labels(apply(x), labels).mean(), {}


@program
def linen_batch_norm(jax: Any, jnp: Any) -> Made:
    import optax
    from flax import linen as nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for channels in (8, 16):
                x = nn.BatchNorm(use_running_average=False)(nn.Conv(channels, (3, 3))(x))
                x = nn.avg_pool(nn.relu(x), (2, 2), (2, 2))
            return nn.Dense(10)(x.reshape(x.shape[0], -1))

    def loss(apply: Callable[..., Any], x: Any, labels: Any) -> Any:
        logits, new = apply(x, mutable=["batch_stats"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new

    return _linen_step(jax, Model(), loss, normal(16, 16, 16, 1), integers(10, 16))


@program
def linen_residual(jax: Any, jnp: Any) -> Made:
    from flax import linen as nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(8, (3, 3))(x)
            for channels, stride in ((8, 1), (16, 2), (32, 2)):
                y = nn.relu(nn.GroupNorm(4)(nn.Conv(channels, (3, 3), (stride, stride), use_bias=False)(x)))
                y = nn.GroupNorm(4)(nn.Conv(channels, (3, 3), use_bias=False)(y))
                x = nn.relu(y + (x if x.shape == y.shape else nn.Conv(channels, (1, 1), (stride, stride))(x)))
            return nn.Dense(10)(x.mean((1, 2)))

    return _linen_step(jax, Model(), _classified, normal(8, 16, 16, 3), integers(10, 8))


@program
def linen_transformer(jax: Any, jnp: Any) -> Made:
    from flax import linen as nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(100, 32)(tokens) + self.param("positions", nn.initializers.normal(0.02), (24, 32))
            for _ in range(2):
                x = x + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(x), mask=nn.make_causal_mask(tokens))
                x = x + nn.Dense(32)(nn.gelu(nn.Dense(128)(nn.LayerNorm()(x))))
            return nn.Dense(100)(nn.LayerNorm()(x))

    return _linen_step(jax, Model(), lambda apply, tokens: _classified(lambda x: apply(x)[:, :-1], tokens, tokens[:, 1:]),
                       integers(100, 8, 24))


@program
def linen_scanned_layers(jax: Any, jnp: Any) -> Made:
    from flax import linen as nn

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x: Any, _: Any) -> Any:
            return x + nn.Dense(32)(nn.swish(nn.Dense(64)(nn.RMSNorm()(x)))), None

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            layers = nn.scan(nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=4)
            return layers()(x, None)[0]

    return _linen_step(jax, Model(), lambda apply, x: ((apply(x) ** 2).mean(), {}), normal(64, 32))


@program
def linen_recurrent(jax: Any, jnp: Any) -> Made:
    from flax import linen as nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(5)(nn.Bidirectional(nn.RNN(nn.LSTMCell(24)), nn.RNN(nn.GRUCell(24)))(x))

    return _linen_step(jax, Model(), lambda apply, x: ((apply(x) ** 2).mean(), {}), normal(16, 30, 6))


@program
def nnx_block(jax: Any, jnp: Any) -> Made:
    import optax
    from flax import nnx

    rngs = nnx.Rngs(0)
    parts = nnx.Dict(attention=nnx.MultiHeadAttention(4, 32, decode=False, rngs=rngs), norm=nnx.LayerNorm(32, rngs=rngs),
                     wide=nnx.Linear(32, 64, rngs=rngs), narrow=nnx.Linear(64, 32, rngs=rngs))
    graph, params, rest = nnx.split(parts, nnx.Param, ...)
    optimizer = optax.adam(1e-3)

    def loss(params: Any, rest: Any, x: Any) -> Any:
        parts = nnx.merge(graph, params, rest)
        x = x + parts.attention(parts.norm(x))
        return ((x + parts.narrow(nnx.silu(parts.wide(x)))) ** 2).mean()

    def step(params: Any, rest: Any, state: Any, x: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, rest, x)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    return step, (params, rest, optimizer.init(params), normal(8, 24, 32))


# --- numpyro and blackjax ----------------------------------------------------------------------------


def _potential(jax: Any, model: Callable[..., Any], *arguments: Any) -> Made:
    """The negative log density of a model of numpyro and its gradient, by unconstrained parameters."""
    from numpyro.infer.util import initialize_model

    found = initialize_model(jax.random.key(0), model, model_args=arguments)
    return jax.value_and_grad(found.potential_fn), (found.param_info.z,)


@program
def numpyro_hierarchical(jax: Any, jnp: Any) -> Made:
    import numpyro
    import numpyro.distributions as dist

    group, x, y = integers(20, 400), normal(400), normal(400)

    def model() -> None:
        mean, width = numpyro.sample("mean", dist.Normal(0, 5)), numpyro.sample("width", dist.HalfCauchy(2))
        factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
        with numpyro.plate("groups", 20):
            line = numpyro.sample("line", dist.MultivariateNormal(jnp.zeros(2), scale_tril=width * factor))
        noise = numpyro.sample("noise", dist.Exponential(1.0))
        numpyro.sample("y", dist.StudentT(4.0, mean + line[group, 0] + line[group, 1] * x, noise), obs=y)

    return _potential(jax, model)


@program
def numpyro_mixture(jax: Any, jnp: Any) -> Made:
    import numpyro
    import numpyro.distributions as dist

    y = normal(300, 2)

    def model() -> None:
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(4)))
        with numpyro.plate("kinds", 4):
            mean = numpyro.sample("mean", dist.Normal(jnp.zeros(2), 3).to_event(1))
            width = numpyro.sample("width", dist.LogNormal(jnp.zeros(2), 1).to_event(1))
        with numpyro.plate("points", 300):
            parts = dist.Normal(mean, width).to_event(1)
            numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=y)

    return _potential(jax, model)


@program
def numpyro_gaussian_process(jax: Any, jnp: Any) -> Made:
    import numpyro
    import numpyro.distributions as dist

    x, y = normal(40), normal(40)

    def model() -> None:
        height, width, noise = (numpyro.sample(name, dist.LogNormal(0.0, 1.0)) for name in ("height", "width", "noise"))
        covariance = height * jnp.exp(-0.5 * ((x[:, None] - x) / width) ** 2) + (noise + 1e-4) * jnp.eye(40)
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(40), covariance_matrix=covariance), obs=y)

    return _potential(jax, model)


def _blackjax_chain(jax: Any, jnp: Any, algorithm: str, **options: Any) -> Made:
    """Twenty draws of a logistic regression."""
    import blackjax

    x, sign = normal(100, 5), 1 - 2 * integers(2, 100)
    kernel = getattr(blackjax, algorithm)(
        lambda weights: -jax.nn.softplus(sign * (x @ weights)).sum() - (weights**2).sum() / 2, step_size=0.1, **options)

    def step(state: Any, key: Any) -> Any:
        state = kernel.step(key, state)[0]
        return state, state.position

    return (lambda state, key: jax.lax.scan(step, state, jax.random.split(key, 20))[1],
            (kernel.init(jnp.zeros(5)), jax.random.key(0)))


_MASS = {"inverse_mass_matrix": np.ones(5, np.float32)}
program(functools.partial(_blackjax_chain, algorithm="nuts", **_MASS), "blackjax_nuts")
program(functools.partial(_blackjax_chain, algorithm="hmc", num_integration_steps=8, **_MASS), "blackjax_hmc")
program(functools.partial(_blackjax_chain, algorithm="mala"), "blackjax_mala")


# --- differential equations, solvers -----------------------------------------------------------------


def _predators(jax: Any, jnp: Any, solver: str, **options: Any) -> Callable[..., Any]:
    """Predators and prey with adaptive steps, of the start and four rates."""
    import diffrax

    def slope(t: Any, y: Any, rates: Any) -> Any:
        return jnp.stack([rates[0] * y[0] - rates[1] * y[0] * y[1], rates[3] * y[0] * y[1] - rates[2] * y[1]])

    controller = diffrax.PIDController(1e-4, 1e-6)
    return lambda start, rates: diffrax.diffeqsolve(
        diffrax.ODETerm(slope), getattr(diffrax, solver)(), 0.0, 10.0, 0.1, start, rates, stepsize_controller=controller,
        max_steps=256, **options).ys


_RATES = np.array([1.0, 0.5, 1.0, 0.3], np.float32)


@program
def diffrax_tsit5(jax: Any, jnp: Any) -> Made:
    import diffrax

    times = diffrax.SaveAt(ts=np.linspace(0, 10, 21).astype(np.float32))
    return _predators(jax, jnp, "Tsit5", saveat=times), (np.array([2, 1], np.float32), _RATES)


@program
def diffrax_gradient(jax: Any, jnp: Any) -> Made:
    solve = _predators(jax, jnp, "Tsit5")
    return (jax.value_and_grad(lambda start, rates: (solve(start, rates) ** 2).sum(), argnums=(0, 1)),
            (np.array([2, 1], np.float32), _RATES))


@program
def diffrax_batch(jax: Any, jnp: Any) -> Made:
    return jax.vmap(_predators(jax, jnp, "Dopri5"), (0, None)), (2 + np.abs(normal(32, 2)), _RATES)


@program
def optimistix_least_squares(jax: Any, jnp: Any) -> Made:
    import optimistix

    x = np.linspace(0, 3, 50).astype(np.float32)
    y = np.exp(-1.3 * x) + 0.1 * normal(50)
    solver = optimistix.LevenbergMarquardt(1e-4, 1e-4)
    return (lambda start: optimistix.least_squares(
        lambda p, _: p[0] * jnp.exp(-p[1] * x) + p[2] - y, solver, start, max_steps=50, throw=False).value,
        (np.array([0.5, 0.5, 0.1], np.float32),))


@program
def lineax_conjugate_gradients(jax: Any, jnp: Any) -> Made:
    import lineax

    half = normal(64, 64)

    def squared(matrix: Any, vector: Any) -> Any:
        operator = lineax.MatrixLinearOperator(matrix, lineax.positive_semidefinite_tag)
        return (lineax.linear_solve(operator, vector, lineax.CG(1e-4, 1e-4)).value ** 2).sum()

    return jax.value_and_grad(squared), (half @ half.T / 64 + np.eye(64, dtype=np.float32), normal(64))


@program
def diffrax_neural(jax: Any, jnp: Any) -> Made:
    """A neural differential equation that follows a curve."""
    import diffrax
    import equinox

    network = equinox.nn.MLP(2, 2, 32, 2, activation=jnp.tanh, key=jax.random.key(0))
    params, static = equinox.partition(network, equinox.is_inexact_array)
    times = np.linspace(0, 1, 20).astype(np.float32)
    curve = np.stack([np.cos(times), np.sin(times)], 1)

    def loss(params: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, _: equinox.combine(params, static)(y))
        found = diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.05, jnp.asarray(curve[0]), max_steps=64,
                                    saveat=diffrax.SaveAt(ts=times), stepsize_controller=diffrax.PIDController(1e-3, 1e-3))
        return ((found.ys - curve) ** 2).mean()

    return jax.value_and_grad(loss), (params,)


@program
def optimistix_newton(jax: Any, jnp: Any) -> Made:
    import optimistix

    matrix = 0.3 * normal(6, 6)

    def squared(shift: Any) -> Any:
        found = optimistix.root_find(lambda y, shift: y - jnp.tanh(matrix @ y) - shift, optimistix.Newton(1e-5, 1e-5),
                                     jnp.zeros(6), shift, throw=False)
        return (found.value**2).sum()

    return jax.value_and_grad(squared), (normal(6),)


@program
def jaxopt_quadratic_program(jax: Any, jnp: Any) -> Made:
    import jaxopt

    solver = jaxopt.BoxOSQP(maxiter=50)
    return (lambda linear: solver.run(params_obj=(2 * jnp.eye(5), linear), params_eq=jnp.eye(5),
                                      params_ineq=(-jnp.ones(5), jnp.ones(5))).params.primal[0]), (normal(5),)


# --- haiku, jraph, dynamax, games --------------------------------------------------------------------


def _haiku_step(jax: Any, forward: Callable[..., Any], loss: Callable[..., Any], *data: Any) -> Made:
    """A step of Adam for a function of haiku's modules."""
    import haiku
    import optax

    transformed, optimizer = haiku.transform_with_state(forward), optax.adam(1e-3)
    params, state = transformed.init(jax.random.key(0), data[0])

    def step(params: Any, state: Any, moments: Any, *data: Any) -> Any:
        def valued(params: Any) -> Any:
            out, new = transformed.apply(params, state, jax.random.key(1), data[0])
            return loss(out, *data[1:]), new

        (value, new), grads = jax.value_and_grad(valued, has_aux=True)(params)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), new, moments, value

    return step, (params, state, optimizer.init(params), *data)


@program
def haiku_lstm(jax: Any, jnp: Any) -> Made:
    import haiku

    def forward(x: Any) -> Any:
        cell = haiku.LSTM(32)
        return haiku.BatchApply(haiku.Linear(5))(haiku.dynamic_unroll(cell, x, cell.initial_state(16))[0])

    return _haiku_step(jax, forward, lambda out: (out**2).mean(), normal(30, 16, 8))


@program
def haiku_quantized_autoencoder(jax: Any, jnp: Any) -> Made:
    import haiku

    def forward(x: Any) -> Any:
        found = haiku.nets.VectorQuantizerEMA(8, 16, 0.25, 0.99)(haiku.nets.MLP([32, 8])(x), True)
        return ((haiku.nets.MLP([32, 20])(found["quantize"]) - x) ** 2).mean() + found["loss"]

    return _haiku_step(jax, forward, lambda out: out, normal(128, 20))


@program
def jraph_network(jax: Any, jnp: Any) -> Made:
    import jraph

    graph = jraph.GraphsTuple(nodes=normal(60, 8), edges=normal(200, 4), senders=integers(60, 200), receivers=integers(60, 200),
                              globals=normal(1, 4), n_node=np.array([60]), n_edge=np.array([200]))

    def loss(weights: Any, graph: Any) -> Any:
        network = jraph.GraphNetwork(
            lambda *parts: jax.nn.relu(jnp.concatenate(parts, 1) @ weights[0]),
            lambda *parts: jax.nn.relu(jnp.concatenate(parts, 1) @ weights[1]),
            lambda *parts: jnp.concatenate(parts, 1) @ weights[2])
        found = network(graph)
        return (found.nodes**2).mean() + (found.globals**2).mean()

    return jax.value_and_grad(loss), ([normal(24, 16) / 5, normal(44, 8) / 5, normal(28, 4) / 5], graph)


@program
def dynamax_smoother(jax: Any, jnp: Any) -> Made:
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM

    model = LinearGaussianSSM(4, 2)
    return (lambda params, y: model.smoother(params, y).smoothed_means,
            (model.initialize(jax.random.key(0))[0], normal(50, 2)))


@program
def dynamax_hidden_markov(jax: Any, jnp: Any) -> Made:
    from dynamax.hidden_markov_model import GaussianHMM

    model = GaussianHMM(4, 2)
    return (jax.value_and_grad(lambda params, y: -model.marginal_log_prob(params, y)),
            (model.initialize(jax.random.key(0))[0], normal(100, 2)))


@program
def gymnax_cart_pole(jax: Any, jnp: Any) -> Made:
    """Games of a hundred moves."""
    import gymnax

    game, options = gymnax.make("CartPole-v1")
    policy = normal(4, 2)

    def play(key: Any) -> Any:
        first, rest = jax.random.split(key)

        def move(carry: Any, key: Any) -> Any:
            seen, state, reward, *_ = game.step(key, carry[1], jnp.argmax(carry[0] @ policy), options)
            return (seen, state), reward

        return jax.lax.scan(move, game.reset(first, options), jax.random.split(rest, 100))[1].sum()

    return jax.vmap(play), (jax.random.split(jax.random.key(0), 64),)


@program
def mctx_search(jax: Any, jnp: Any) -> Made:
    import mctx

    weights = normal(8, 4)

    def step(_: Any, key: Any, action: Any, state: Any) -> Any:
        state = jnp.tanh(state + 0.1 * weights[:, 0] * action[:, None])
        return mctx.RecurrentFnOutput(reward=0.1 * state.sum(1), discount=jnp.full(16, 0.9), prior_logits=state @ weights,
                                      value=state.mean(1)), state

    def search(state: Any, key: Any) -> Any:
        root = mctx.RootFnOutput(prior_logits=state @ weights, value=state.mean(1), embedding=state)
        return mctx.gumbel_muzero_policy((), key, root, step, num_simulations=16, max_num_considered_actions=4).action_weights

    return search, (normal(16, 8), jax.random.key(0))
