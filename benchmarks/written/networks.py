"""Layers and losses of neural networks, most with their gradients."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, integers, program


@program((32, 20, 16), (16, 48), (16, 48), (48,))
def gru(jax, jnp, x, w, u, b):
    def loss(w, u, b):
        def step(h, x):
            gi = x @ w + b
            gh = h @ u
            r = jax.nn.sigmoid(gi[:, :16] + gh[:, :16])
            z = jax.nn.sigmoid(gi[:, 16:32] + gh[:, 16:32])
            n = jnp.tanh(gi[:, 32:] + r * gh[:, 32:])
            return (1 - z) * n + z * h, None

        return (jax.lax.scan(step, jnp.zeros((32, 16)), x.transpose(1, 0, 2))[0] ** 2).mean()

    return jax.grad(loss, (0, 1, 2))(w, u, b)


@program((3, 16, 8), (8, 32), (8, 32), (32,))
def lstm(jax, jnp, x, w, u, b):
    def cell(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return jax.lax.scan(cell, (jnp.zeros((3, 8)), jnp.zeros((3, 8))), x.transpose(1, 0, 2))[1]


@program((2, 64, 64), (64, 192), (64, 64))
def rotary_attention(jax, jnp, x, w, o):
    q, k, v = jnp.split(x @ w, 3, -1)
    heads = lambda t: t.reshape(2, 64, 4, 16)
    f = 1 / 10000 ** (jnp.arange(0, 16, 2) / 16)
    angles = jnp.arange(64)[:, None] * f
    c, s = jnp.cos(angles)[None, :, None], jnp.sin(angles)[None, :, None]

    def rotated(t):
        a, b = t[..., ::2], t[..., 1::2]
        return jnp.stack([a * c - b * s, a * s + b * c], -1).reshape(t.shape)

    q, k, v = rotated(heads(q)), rotated(heads(k)), heads(v)
    a = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4
    a = jnp.where(jnp.tril(jnp.ones((64, 64), bool)), a, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(a), v).reshape(2, 64, 64) @ o


@program((2, 64, 64), (64, 192), (64, 64))
def rotary_attention_gradient(jax, jnp, x, w, o):
    return jax.grad(lambda w, o: (rotary_attention(jax, jnp, x, w, o) ** 2).mean(), (0, 1))(w, o)


@program((4, 20, 32), (32, 32), (32, 32), (32, 32), (20, 20))
def attention_bias(jax, jnp, x, q, k, v, b):
    def loss(q, k, v, b):
        s = jnp.einsum("bid,bjd->bij", x @ q, x @ k) / 5.6 + b
        return (jax.nn.softmax(s, -1) @ (x @ v)).sum(-1).var()

    return jax.grad(loss, (0, 1, 2, 3))(q, k, v, b)


@program((2, 40, 24), (24, 24), (24, 24), (24, 24))
def linear_attention(jax, jnp, x, q, k, v):
    feature = lambda x: jax.nn.elu(x) + 1
    q, k, v = feature(x @ q), feature(x @ k), x @ v
    kv = jnp.cumsum(jnp.einsum("bti,btj->btij", k, v), 1)
    z = jnp.cumsum(k, 1)
    return jnp.einsum("bti,btij->btj", q, kv) / (jnp.einsum("bti,bti->bt", q, z)[..., None] + 1e-6)


@program((2, 50, 16), (16,), (16, 4), (16, 4), (16,))
def selective_scan(jax, jnp, x, d, b, c, a):
    """A state space layer whose steps depend on the input."""

    def loss(d, b, c, a):
        dt = jax.nn.softplus(x * d)
        decay = jnp.exp(dt[..., None] * -jnp.exp(a)[:, None])
        drive = dt[..., None] * b * x[..., None]
        combine = lambda left, right: (left[0] * right[0], left[1] * right[0] + right[1])
        _, h = jax.lax.associative_scan(combine, (decay, drive), axis=1)
        return ((h * c).sum(-1) ** 2).mean()

    return jax.grad(loss, (0, 1, 2, 3))(d, b, c, a)


@program((128, 32), (32, 8), (8, 32, 64), (8, 64, 32))
def mixture_of_experts(jax, jnp, x, gate, up, down):
    def loss(gate, up, down):
        p = jax.nn.softmax(x @ gate)
        v, i = jax.lax.top_k(p, 2)
        w = jnp.zeros_like(p).at[jnp.arange(128)[:, None], i].set(v / v.sum(-1, keepdims=True))
        h = jax.nn.gelu(jnp.einsum("nd,edh->neh", x, up))
        return (jnp.einsum("neh,ehd,ne->nd", h, down, w) ** 2).mean()

    return jax.grad(loss, (0, 1, 2))(gate, up, down)


@program((8, 64, 96), (2, 128, 64), (2, 64, 128), (2, 96, 128), (2, 128, 96))
def mixer(jax, jnp, x, up, down, widen, narrow):
    """Two layers that mix places, with matrices before the arrays, and then channels; with gradients."""

    def loss(up, down, widen, narrow):
        y = x
        for layer in range(2):
            y = y + 0.1 * down[layer] @ jax.nn.gelu(0.1 * up[layer] @ y)
            y = y + 0.1 * jax.nn.gelu(0.1 * y @ widen[layer]) @ narrow[layer]
        return (y**2).mean()

    return jax.value_and_grad(loss, (0, 1, 2, 3))(up, down, widen, narrow)


@program((8, 3, 64, 64), (16, 3), (16, 16), (10, 16))
def pointwise_convolutions(jax, jnp, images, first, second, head):
    """Channels of images are combined in each place, as `einsum` says it."""
    y = jax.nn.relu(jnp.einsum("bchw,oc->bohw", images, first))
    y = jax.nn.relu(jnp.einsum("bchw,oc->bohw", y, second))
    return jax.nn.log_softmax(jnp.einsum("bchw,oc->bohw", y, head), axis=1)


@program((8, 3, 16, 16), (8, 3, 3, 3), (8,), (8,))
def convolution_batch_norm(jax, jnp, x, w, scale, shift):
    def loss(w, scale, shift):
        h = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")
        m = h.mean((0, 2, 3), keepdims=True)
        v = h.var((0, 2, 3), keepdims=True)
        h = (h - m) / jnp.sqrt(v + 1e-5) * scale[:, None, None] + shift[:, None, None]
        return (jax.nn.relu(h) ** 2).mean()

    return jax.value_and_grad(loss, (0, 1, 2))(w, scale, shift)


@program((4, 8, 8, 16), (16,))
def group_norm(jax, jnp, x, scale):
    def loss(x, scale):
        h = x.reshape(4, 8, 8, 4, 4)
        h = (h - h.mean((1, 2, 4), keepdims=True)) * jax.lax.rsqrt(h.var((1, 2, 4), keepdims=True) + 1e-5)
        return (h.reshape(x.shape) * scale).sum()

    return jax.grad(loss, (0, 1))(x, scale)


@program((20, 50), (20, 50), (50,))
def rms_norm_residual(jax, jnp, x, r, scale):
    y = x + r
    return y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6) * scale, y


@program(KEY, (64, 32))
def dropout_chain(jax, jnp, key, x):
    for i in range(3):
        x = jax.nn.relu(x)
        x = jnp.where(jax.random.bernoulli(jax.random.fold_in(key, i), 0.9, x.shape), x / 0.9, 0)
    return x


@program((64, 32), (20, 32))
def vector_quantization(jax, jnp, z, codes):
    """With gradients straight through the choice of a code."""

    def loss(z, e):
        d = (z**2).sum(1, keepdims=True) - 2 * z @ e.T + (e**2).sum(1)
        q = e[d.argmin(1)]
        stop = jax.lax.stop_gradient
        return ((stop(q) - z) ** 2).mean() * 0.25 + ((q - stop(z)) ** 2).mean() + (z + stop(q - z)).sum() * 1e-3

    return jax.grad(loss, (0, 1))(z, codes)


@program((16, 10), (16, 10), (16, 10))
def triplet_loss(jax, jnp, a, p, n):
    distance = lambda x, y: jnp.linalg.norm(x - y, axis=1)
    return jax.grad(lambda a: jnp.maximum(0, distance(a, p) - distance(a, n) + 1).mean())(a)


@program((8, 20, 20, 4))
def focal_loss(jax, jnp, x):
    return jax.value_and_grad(lambda x: (-((1 - jax.nn.sigmoid(x)) ** 2) * jax.nn.log_sigmoid(x)).mean())(x)


@program((64, 16))
def contrastive_loss(jax, jnp, x):
    def loss(x):
        z = x / jnp.linalg.norm(x, axis=1, keepdims=True)
        s = z @ z.T / 0.1
        s = jnp.where(jnp.eye(64, dtype=bool), -1e9, s)
        return -jax.nn.log_softmax(s)[jnp.arange(64), (jnp.arange(64) + 32) % 64].mean()

    return jax.value_and_grad(loss)(x)


@program((32, 50, 10), integers(32, 8))
def ctc_loss(jax, jnp, logits, labels):
    """The likelihood of labels over all their alignments."""
    log_p = jax.nn.log_softmax(logits)
    extended = jnp.zeros((32, 17), int).at[:, 1::2].set(labels % 9 + 1)
    emitted = jnp.take_along_axis(log_p, jnp.broadcast_to(extended[:, None], (32, 50, 17)), 2)
    skips = (extended != 0) & (extended != jnp.pad(extended, ((0, 0), (2, 0)))[:, :17])

    def step(a, e):
        a1 = jnp.pad(a, ((0, 0), (1, 0)), constant_values=-1e9)[:, :-1]
        a2 = jnp.where(skips, jnp.pad(a, ((0, 0), (2, 0)), constant_values=-1e9)[:, :-2], -1e9)
        return jnp.logaddexp(jnp.logaddexp(a, a1), a2) + e, None

    start = jnp.full((32, 17), -1e9).at[:, :2].set(emitted[:, 0, :2])
    a, _ = jax.lax.scan(step, start, emitted[:, 1:].transpose(1, 0, 2))
    return -jnp.logaddexp(a[:, -1], a[:, -2]).mean()


@program((32, 50, 10), integers(32, 8))
def ctc_loss_gradient(jax, jnp, logits, labels):
    return jax.grad(lambda x: ctc_loss(jax, jnp, x, labels))(logits)


@program(integers(4, 32), (20, 64), (64, 192), (64, 64), differentiable=False)
def cached_decoding(jax, jnp, tokens, embedding, w, o):
    """One layer of attention writes tokens, and keeps keys and values."""

    def step(state, i):
        keys, values, token = state
        x = embedding[token]
        q, k, v = jnp.split(x @ w, 3, -1)
        keys = jax.lax.dynamic_update_index_in_dim(keys, k, i, 1)
        values = jax.lax.dynamic_update_index_in_dim(values, v, i, 1)
        a = jnp.einsum("bd,btd->bt", q, keys) / 8
        a = jax.nn.softmax(jnp.where(jnp.arange(32) <= i, a, -1e9))
        y = x + jnp.einsum("bt,btd->bd", a, values) @ o
        new = (y @ embedding.T).argmax(-1).astype(jnp.int32)
        return (keys, values, new), new

    start = (jnp.zeros((4, 32, 64)), jnp.zeros((4, 32, 64)), tokens[:, 0])
    return jax.lax.scan(step, start, jnp.arange(32))[1]


@program((8, 30), KEY, differentiable=False)
def nucleus_sampling(jax, jnp, logits, key):
    logits = logits / 0.8
    s = jnp.sort(logits, -1)[:, ::-1]
    c = jnp.cumsum(jax.nn.softmax(s), -1)
    cut = jnp.take_along_axis(s, (c < 0.9).sum(-1, keepdims=True), -1)
    return jax.random.categorical(key, jnp.where(logits < cut, -jnp.inf, logits))


@program((20, 6), (6, 6, 4))
def tensor_train(jax, jnp, x, g):
    step = lambda v, y: (jnp.tanh(jnp.einsum("i,ijk,k->j", v, g, y)), v)
    return jax.lax.scan(step, jnp.ones(6), x[:, :4])
