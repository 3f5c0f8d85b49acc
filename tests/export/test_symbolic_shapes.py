"""Symbolic dimensions: their algebra, programs traced and lowered with them, calls that make them static."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import export, lax, random
from jaxlite.core.symbolic import largest as larger
from jaxlite.core.symbolic import smallest as smaller
from jaxlite.errors import InconclusiveDimensionOperation

DATA = Path(__file__).resolve().parents[1] / "data" / "export"
S = jaxlite.ShapeDtypeStruct


def test_algebra():
    a, b = export.symbolic_shape("a, b", constraints=["a >= b + 2", "mod(b, 4) == 0"])
    values = {"a": 14, "b": 4}
    for dim, text in [(a * b + 2 * a - 1, "a*b + 2*a - 1"), (a // 2, "floordiv(a, 2)"), ((2 * a + 5) // 2, "a + 2"),
                      ((a * a - b * b) // (a + b), "- b + a"), (a % 3, "mod(a, 3)"), (3 * a - (a + 2 * a), "0"), (b % 4, "0"),
                      (-a, "- a"), ((a + 1) ** 2, "a^2 + 2*a + 1"), (10 - a, "- a + 10"),
                      (b + a, "b + a"), (a * b - a // 2 + a, "- floordiv(a, 2) + a*b + a"), (divmod(4 * a + 2, 4)[1], "2")]:
        assert str(dim) == text
        again, = export.symbolic_shape(text, scope=a.scope)
        assert again == dim and hash(again) == hash(dim)
        if not isinstance(dim, int):
            assert dim.evaluate(values) == eval(text.replace("^", "**"), {
                **values, "floordiv": lambda x, y: x // y, "mod": lambda x, y: x % y})
    assert a >= b and a > b + 1 and b < a and a - b >= 2 and a * b >= 1 and not a <= b and a != b and a == a + 0
    assert export.is_symbolic_dim(a) and not export.is_symbolic_dim(3)
    for known in (a // 2 + 1 <= a + 1, 2 * (a // 2) <= a, 3 * (a // 3) >= a - 2, smaller(a, b + 1) <= b + 1, larger(a, 5) >= a):
        assert known
    for unknown in (lambda: a >= 5, lambda: smaller(a, 20) >= 20, lambda: 2 * (a // 2) >= a,
                    lambda: bool(a - 4), lambda: int(a), lambda: range(b)):
        with pytest.raises(InconclusiveDimensionOperation):
            unknown()
    with pytest.raises(ValueError, match="Invalid mixing of symbolic scopes"):
        a + export.symbolic_shape("a")[0]
    for wrong in ("a b", "a,,b", "2.5", "f(a)", "a//"):
        with pytest.raises(ValueError, match="syntax error in symbolic shape"):
            export.symbolic_shape(wrong)


def program(x):
    """Many operations whose shapes depend on dimensions, in one compile."""
    n, m = x.shape
    scaled = jnp.concatenate([x, 2 * x], axis=1) * n + jnp.arange(2 * m)
    window = lax.dynamic_slice_in_dim(x, 1, n - 1)
    last, total = lax.scan(lambda carry, row: (carry + row.sum(), row * carry), 0.0, x)
    looped = lax.fori_loop(0, n, lambda i, value: value + x[i, 0], 0.0)
    grown = lax.while_loop(lambda value: value.sum() < 100, lambda value: value + 1, x)
    return {
        "scaled": scaled, "flat": x.reshape(-1), "split": x.reshape(n, 2, -1).sum(1),
        "slices": (x[1:], x[:, ::2], x[-1], x[::-1]),
        "product": x @ x.T, "softmax": jaxlite.nn.softmax(x), "moments": (x - x.mean(0)) / (1 + x.std(0)), "window": window,
        "scan": (last, total), "loop": looped, "while": grown, "pad": jnp.pad(x, ((1, 2), (0, 0))), "at": x.at[0].set(0.0),
        "order": (jnp.argmax(x, 1), jnp.sort(x, 0)), "take": x[jnp.array([0, 2])], "eye": jnp.eye(n) + jnp.ones((n, n)),
        "vmap": jaxlite.vmap(lambda row: row / (1 + row.sum()))(x), "tile": jnp.tile(x, (2, 1)),
        "grad": jaxlite.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(jnp.ones((m,))), "jit": jaxlite.jit(lambda y: y + 1)(x),
        "one_hot": jaxlite.nn.one_hot(jnp.argmax(x, 1), m), "stack": jnp.stack([x, x]), "einsum": jnp.einsum("ij,kj->ik", x, x)}


def test_programs_are_right_for_each_shape():
    shape = export.symbolic_shape("b, 2*h", constraints=["b >= 3"])
    exported = export.deserialize(export.export(jaxlite.jit(program))(S(shape, np.float32)).serialize())
    assert str(exported.out_avals[-1].shape) == "(b - 1, 2*h)" and exported.uses_global_constants
    for size in ((3, 4), (5, 2)):
        x = jnp.asarray(np.random.default_rng(0).normal(size=size).astype(np.float32))
        got, want = exported.call(x), jaxlite.jit(program)(x)
        for path, leaf in jaxlite.tree.leaves_with_path(want):
            found = dict(jaxlite.tree.leaves_with_path(got))[path]
            np.testing.assert_allclose(found, leaf, rtol=1e-4, atol=1e-5, err_msg=str(path))
    for wrong, text in [((2, 4), "symbolic shape constraint b >= 3. Expected 'b - 3'"), ((4, 3), "Division had remainder 1"),
                        ((4,), "Rank mismatch")]:
        with pytest.raises(ValueError, match=text):
            exported.call(np.ones(wrong, np.float32))


def shapes_that_are_computed(x):
    """Positions, counts, windows and random numbers of symbolic size."""
    n, rows = x.shape[0], jnp.arange(x.shape[0])
    key, up = jaxlite.random.key(0), jnp.sort(x[:, 0])
    return {
        "running": (jnp.cumsum(x, 0), lax.cummax(x, 0, reverse=True), lax.cumlogsumexp(x, 1), jaxlite.vmap(jnp.cumprod)(x)),
        "top": (lax.top_k(x.T, n), lax.top_k(x, 2)), "line": (jnp.linspace(0, 1, n), jnp.linspace(0, 1, n - 2)),
        "scan": lax.associative_scan(lambda a, b: a + b + a * b, x),
        "order": (jnp.median(x, 0), jnp.quantile(x, 0.3, axis=0), jnp.searchsorted(up, x[:, 1]),
                  jnp.interp(x[:, 0], up, x[:, 2])),
        "move": (jnp.roll(x, 2, 0), jnp.delete(x, 0, axis=0), x[::2], jnp.split(x, [1, 2]), jnp.repeat(x, 2, axis=0),
                 jnp.insert(x, 1, 0.5, axis=0), jnp.repeat(x, np.array([1, 2, 1]), axis=1, total_repeat_length=n)),
        "take": (x[rows // 2, 1], jnp.asarray(x).at[rows].add(2.0), jnp.bincount(rows, length=3),
                 jnp.bincount(rows, length=n), jnp.nonzero(x[:, 0], size=n), jnp.diagonal(x @ x.T, 1)),
        "random": (jaxlite.random.normal(key, x.shape), jaxlite.random.split(key, n), jaxlite.random.gamma(key, 2.0, (n,)),
                   jaxlite.random.categorical(key, x)),
        "window": (lax.reduce_window(x, 0.0, lax.add, (2, 1), (1, 1), "VALID"),
                   lax.reduce_window(x, -jnp.inf, lax.max, (3, 1), (2, 1), "SAME"),
                   jaxlite.image.resize(x, (2 * n, 5), "linear"), jaxlite.image.resize(x, (2 * n, 3), "nearest")),
        "moments": (jnp.cov(x.T), jnp.trapezoid(x, axis=0), jnp.histogram(x, bins=4)[0],
                    jaxlite.ops.segment_sum(x, rows % 2, num_segments=2))}


def matrices_and_derivatives(x):
    """Factorizations in batches and of symbolic matrices; derivatives of windows, convolutions and orders."""
    each = x[:, :, None] * x[:, None, :] + jnp.eye(3)
    whole = x @ x.T + jnp.eye(x.shape[0])
    kernel = jnp.ones((1, 3, 2, 1))

    def loss(x):
        pooled = lax.reduce_window(x, -jnp.inf, lax.max, (2, 1), (2, 1), "SAME")
        image = lax.conv(x.T[None, :, :, None], kernel, (2, 1), "SAME")
        parts = x[:2].sum() + x[1:].prod() + x[0].sum() ** 2 + x[-1].max() + (x[::2] ** 2).sum()
        return parts + (pooled ** 2).sum() + (image ** 3).sum() + (jnp.sort(x, 0)[::-1] * jnp.cumsum(x, 0)).sum()

    return {"cholesky": (jnp.linalg.cholesky(each), jnp.linalg.cholesky(whole)), "solve": jnp.linalg.solve(whole, x),
            "inverse": (jnp.linalg.inv(each), jnp.linalg.det(each)), "eigenvalues": jnp.linalg.eigvalsh(each),
            "svd": jnp.linalg.svd(each, compute_uv=False), "expm": jaxlite.scipy.linalg.expm(0.1 * each),
            "dot": jnp.vectorize(jnp.dot, signature="(i),(i)->()")(x, x), "det": jnp.linalg.det(whole),
            "qr": abs(jnp.linalg.qr(each)[1]), "tall": abs(jnp.linalg.qr(x)[1]), "grad": jaxlite.grad(loss)(x)}


def parts_of_matrices(x):
    n, m = x.shape
    indices = [jnp.tril_indices(n), jnp.triu_indices(n, 1), jnp.tril_indices(n, -1, m), jnp.triu_indices_from(x),
               jnp.tril_indices_from(x, 7)]
    return {"indices": [jnp.zeros((n, n + m), int).at[each].add(1) for each in indices],
            "triangles": (jnp.triu(x), jnp.tril(x, 1)), "last": x.at[-1].set(3.0), "ends": x.at[np.array([-1, 0]), 0].add(1.0),
            "frequencies": jnp.fft.fftfreq(n, 0.5),
            "toeplitz": jaxlite.scipy.linalg.toeplitz(x[:, 0], x[0]), "hankel": jaxlite.scipy.linalg.hankel(x[:, 0]),
            "isin": jnp.isin(x, x[:, 0]), "logdet": jnp.linalg.slogdet(x @ x.T + 9 * jnp.eye(n))}


@pytest.mark.parametrize("fun", [shapes_that_are_computed, matrices_and_derivatives, parts_of_matrices])
def test_sizes_that_are_values(fun):
    exported = export.export(jaxlite.jit(fun))(S(export.symbolic_shape("b, 3", constraints=["b >= 3"]), np.float32))
    x = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32))
    got = dict(jaxlite.tree.leaves_with_path(exported.call(x)))
    for path, leaf in jaxlite.tree.leaves_with_path(jaxlite.jit(fun)(x)):
        if jnp.issubdtype(leaf.dtype, jaxlite.dtypes.prng_key):
            got[path], leaf = map(jaxlite.random.key_data, (got[path], leaf))
        np.testing.assert_allclose(got[path], leaf, rtol=1e-4, atol=1e-5, err_msg=str(path))


def test_derivatives_platforms_and_files_of_jax():
    a, b = export.symbolic_shape("a, b")
    exported = export.export(jaxlite.jit(lambda x: (x[:, :1] * x).sum()), platforms=("tpu", "cpu"))(S((a, b), np.float32))
    again = export.deserialize(exported.serialize(vjp_order=1))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(jaxlite.grad(lambda x: again.call(x))(x), jaxlite.grad(lambda x: (x[:, :1] * x).sum())(x))
    for version in ("jax010", "jax012"):  # the later one in operations that jaxlib 0.10 knows by another name
        files = export.deserialize((DATA / f"{version}_shapes.bin").read_bytes())
        flat, total = files.call(np.ones((4, 3), np.float32))
        assert flat.shape == (12,) and total.tolist() == [8, 8, 8] and str(files.in_avals[0].shape) == "(2*b, c)"
        with pytest.raises(ValueError, match="Division had remainder 1 when computing the value of 'b'"):
            files.call(np.ones((3, 3), np.float32))


def test_dimensions_among_arrays_and_in_exported_programs():
    """Arithmetic with arrays, floats and powers gives arrays; a program with symbolic sizes calls one with its own."""
    def values(x):
        a = x.shape[0]
        return (5. + a, a - np.arange(3), np.arange(3) * a, a / 2, 3 / a, 2 ** a, a ** jnp.float32(2), x + jnp.sin(a), x.shape,
                np.array([7, 8]) // a, 7.5 % a)

    x = np.ones((3, 4), np.int32)
    got = export.export(jaxlite.jit(values))(S(export.symbolic_shape("a, 4"), np.int32)).call(x)
    for one, two in zip(jaxlite.tree.leaves(got), jaxlite.tree.leaves(values(x)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)
    assert got[8][0].weak_type and got[0].weak_type
    c, b = (S(export.symbolic_shape(each), np.float32) for each in ("2*c", "4*b"))
    inner = export.export(jaxlite.jit(lambda y: jnp.concatenate([y, y]) * y.shape[0]))(c)
    outer = export.export(jaxlite.jit(lambda x: inner.call(x).sum() + inner.call(x[2:])))(b)
    assert str(outer.out_avals[0].shape) == "(8*b - 4,)"
    assert export.deserialize(outer.serialize()).call(np.ones(4, np.float32)).tolist() == [34] * 4
    a, = export.symbolic_shape("a", constraints=["mod(a, 3) == 0"])
    assert a // 3 * 3 == a and a // 3 * 6 + 1 == 2 * a + 1
    for wrong in (lambda: a ** -1, lambda: export.symbolic_shape("3, a", like=(4, 5)),
                  lambda: export.symbolic_args_specs((x,), (3,)), lambda: jaxlite.jit(values).lower(S((a, 4), np.int32))):
        with pytest.raises(ValueError, match="negative powers|different size 3|should be None or a string|export it"):
            wrong()
    with pytest.raises(TypeError, match="Symbolic dimension 'a' used in a context that requires a constant"):
        range(a)
    with pytest.raises(NotImplementedError, match="Evaluation rule for 'dim_as_value'"):
        a + 1.5
    same = export.export(jaxlite.jit(lambda x: x))(S(export.symbolic_shape("b, b"), np.int32))
    with pytest.raises(ValueError, match=r"dimension size args\[0\].shape\[1\] \(= 4\) and the specification 'b' \(= 3\)"):
        export.deserialize(same.serialize()).call(x)


def test_specs_from_arguments():
    args = (np.ones((4, 3), np.float32), {"n": np.ones(3, np.int32)})
    x, named = export.symbolic_args_specs(args, ("b, ...", {"n": None}))
    assert str(x.shape) == "(b, 3)" and named["n"].shape == (3,)
    with pytest.raises(ValueError, match="has 2 dimensions"):
        export.symbolic_shape("a, b", like=(1, 2, 3))


def test_permutations_convolutions_and_medians_of_unknown_size():
    def f(x, y):
        shuffled = random.permutation(random.key(3), x), random.permutation(random.key(1), x.shape[0])
        return *shuffled, jnp.median(x), jnp.pad(y, (1, x.shape[0])), *(jnp.convolve(x, y, mode) for mode in MODES), \
            *(jnp.correlate(x, y, mode) for mode in MODES)

    MODES = "valid", "full", "same"
    called = export.export(jaxlite.jit(f))(*[S((size,), np.float32) for size in export.symbolic_shape("a, b")]).call
    for sizes in ((1700, 4), (5, 6)):  # 2 sorts and 1
        x, y = (np.arange(1.0, size + 1, dtype=np.float32) for size in sizes)
        one, two, *rest = called(x, y)
        np.testing.assert_array_equal(one, random.permutation(random.key(3), x))
        np.testing.assert_array_equal(two, random.permutation(random.key(1), sizes[0]))
        wanted = [np.median(x), np.pad(y, (1, sizes[0])), *(np.convolve(x, y, mode) for mode in MODES),
                  *(np.correlate(x, y, mode) for mode in MODES)]
        for found, value in zip(rest, wanted, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-5)
    a, b = export.symbolic_shape("a, b")
    with pytest.raises(InconclusiveDimensionOperation, match=r"divide evenly the sizes of shapes \(a, b\) and \(-1, 2\)"):
        export.export(jaxlite.jit(lambda x: x.reshape(-1, 2)))(S((a, b), np.float32))
    with pytest.raises(ValueError, match="Invalid mixing of symbolic scopes when exporting .*\nThe dimension .a. of args"):
        export.export(jaxlite.jit(lambda x, y: 0))(S((a,), np.float32), S(export.symbolic_shape("c"), np.float32))
    for part, text in [(slice(9), "min(a, 9)"), (slice(None, None, 2), "floordiv(a + 1, 2)")]:
        shape = export.export(jaxlite.jit(lambda x, part=part: x[part]))(S((a,), np.float32)).out_avals[0].shape
        assert str(shape[0]) == text


def test_what_the_size_decides_when_the_program_runs():
    """Whether a new shape has as many elements, and whether an index is inside."""
    def f(x):
        pairs = x.reshape(x.shape[0] // 2, 6)
        return (pairs, x[5], x[-4], x.at[4].get(mode="fill", fill_value=-1), x.at[5].set(9),
                jaxlite.ops.segment_sum(x, jnp.arange(x.shape[0]) // 2, x.shape[0] // 2),
                x.shape[0] / 2 * jnp.ones(2, int), jnp.arange(0, x.shape[0], 4))

    b, = export.symbolic_shape("b")
    exported = export.export(jaxlite.jit(f))(S((b, 3), np.float32))
    assert [str(aval.shape) for aval in exported.out_avals[::7]] == ["(floordiv(b, 2), 6)", "(floordiv(b + 3, 4),)"]
    for size in (2, 6):
        x = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
        found = exported.call(x)
        changed = x.copy()
        changed[5:] = 9
        wanted = [x.reshape(-1, 6), x[-1], x[max(size - 4, 0)], x[4] if size > 4 else [-1] * 3, changed,
                  x.reshape(-1, 2, 3).sum(1), [size / 2] * 2, range(0, size, 4)]
        for one, two in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, list(two))
        assert found[6].dtype == np.float32
    with pytest.raises(ValueError, match="number of output elements"):
        exported.call(np.ones((3, 3), np.float32))
    with pytest.raises(TypeError, match=r"cannot reshape array of shape \(b, 3\)"):
        export.export(jaxlite.jit(lambda x: x.reshape(-1, 4)[:, :3].reshape(x.shape)))(S((b, 4), np.float32))
    for wrong in (lambda: jnp.arange(0.0, b), lambda: jnp.arange(0, b, 0.5),
                  lambda: export.symbolic_shape("a", constraints=["a >= 5", "a <= 4"]),
                  lambda: export.symbolic_shape("a", constraints=["a >= 5", "a == 4"])):
        with pytest.raises(ValueError, match=r"symbolic dimensions|Unsatisfiable constraint: a .= 4 where a >= 5"):
            wrong()


def test_arrays_of_64_bits_that_a_program_closes_over():
    table = np.array([1, 2, 300]), np.array([0.5, 1.5, 2.5])
    called = export.export(jaxlite.jit(lambda x: (x + table[0]) * table[1]))(S((3,), np.float32)).call
    np.testing.assert_array_equal(called(np.ones(3, np.float32)), np.float32([1.0, 4.5, 752.5]))


def test_functions_of_the_program_stay_functions():
    step = jaxlite.jit(lambda x, k: jnp.roll(x, 1) * k + x.shape[0])

    def whole(x, levels=2):
        f = step
        for _ in range(levels):
            f = jaxlite.jit(lambda x, k, f=f: (f(x, k) + f(x, 1)) / 2)
        y = lax.fori_loop(0, 2, lambda i, y: step(y, i), f(x, 3))  # in a loop too
        sine = lax.composite(lambda y: jnp.sin(y) + y.shape[0], "my.sine")
        return y, step(jnp.concatenate([x, x]), 2), sine(x)

    given = S(export.symbolic_shape("n"), np.float32)
    assert export.export(jaxlite.jit(lambda x: whole(x, 12)))(given).mlir_module().count("\n") < 1000
    exported = export.export(jaxlite.jit(whole), platforms=["cpu", "tpu"])(given)
    for size in (3, 4):
        x = np.arange(size, dtype=np.float32)
        for ours, expected in zip(jaxlite.jit(exported.call)(x), whole(x), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-6)
