"""Transformers and their relatives: blocks with gradients, decoding, sampling, compression."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, integers, program


def rms_norm(jax, jnp, x, scale):
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale


@program((2, 48, 64), (64,), (64, 128), (64, 64), (64,), (64, 320), (160, 64))
def llama_block(jax, jnp, x, s1, qkv, out, s2, gates, down):
    """Four heads that share two pairs of keys and values, rotary positions, gated units; with gradients."""
    angles = jnp.arange(48.0)[:, None] / 10000 ** (jnp.arange(8) / 8)
    cosine, sine = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]

    def rotated(t):
        a, b = jnp.split(t, 2, -1)
        return jnp.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)

    def loss(s1, qkv, out, s2, gates, down):
        h = rms_norm(jax, jnp, x, s1) @ (0.1 * qkv)
        q = rotated(h[..., :64].reshape(2, 48, 4, 16)).reshape(2, 48, 2, 2, 16)
        k = rotated(h[..., 64:96].reshape(2, 48, 2, 16))
        v = h[..., 96:].reshape(2, 48, 2, 16)
        a = jnp.einsum("bqgrd,bkgd->bgrqk", q, k) / 4
        a = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((48, 48), bool)), a, -jnp.inf))
        y = x + jnp.einsum("bgrqk,bkgd->bqgrd", a, v).reshape(2, 48, 64) @ (0.1 * out)
        u, g = jnp.split(rms_norm(jax, jnp, y, s2) @ (0.1 * gates), 2, -1)
        return ((y + (jax.nn.silu(g) * u) @ (0.1 * down)) ** 2).mean()

    return jax.value_and_grad(loss, (0, 1, 2, 3, 4, 5))(s1, qkv, out, s2, gates, down)


@program((2, 4, 64, 16), (2, 4, 64, 16), (2, 4, 64, 16))
def alibi_attention(jax, jnp, q, k, v):
    """The distance lowers the score, with a slope for each head; gradients."""
    slopes = 2.0 ** (-2 * jnp.arange(1, 5))
    distance = jnp.arange(64)[:, None] - jnp.arange(64)
    bias = jnp.where(distance >= 0, -slopes[:, None, None] * distance, -1e9)

    def loss(q, k, v):
        a = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 4 + bias)
        return ((a @ v) ** 2).mean()

    return jax.grad(loss, (0, 1, 2))(q, k, v)


@program((4, 256, 32), (4, 256, 32), (4, 256, 32))
def blockwise_attention(jax, jnp, q, k, v):
    """Keys and values come in blocks of 32; the softmax is kept up to date."""

    def block(state, kv):
        most, total, out = state
        k, v = kv
        s = jnp.einsum("hqd,hkd->hqk", q, k) / 32**0.5
        new = jnp.maximum(most, s.max(-1))
        p = jnp.exp(s - new[..., None])
        scale = jnp.exp(most - new)
        return (new, total * scale + p.sum(-1), out * scale[..., None] + jnp.einsum("hqk,hkd->hqd", p, v)), None

    blocks = lambda x: x.reshape(4, 8, 32, 32).swapaxes(0, 1)
    start = (jnp.full((4, 256), -jnp.inf), jnp.zeros((4, 256)), jnp.zeros((4, 256, 32)))
    (_, total, out), _ = jax.lax.scan(block, start, (blocks(k), blocks(v)))
    return out / total[..., None]


@program((2, 128, 32), (32, 96))
def window_attention(jax, jnp, x, w):
    """Each token sees the sixteen before it: windows are gathered."""
    q, k, v = jnp.split(x @ w * 0.2, 3, -1)
    places = jnp.arange(128)[:, None] - jnp.arange(16)
    near = lambda t: t[:, jnp.maximum(places, 0)]
    s = jnp.einsum("btd,btwd->btw", q, near(k)) / 32**0.5
    a = jax.nn.softmax(jnp.where(places >= 0, s, -jnp.inf))
    return jnp.einsum("btw,btwd->btd", a, near(v))


@program((2, 40, 32), (32, 64), (4, 32), (32, 40), (32, 8), (32, 32))
def mamba_block(jax, jnp, x, w_in, kernel, w_x, a, w_out):
    """A causal convolution, then a state whose steps depend on the input, by a scan; with gradients."""

    def loss(w_in, kernel, w_x, a, w_out):
        u, gate = jnp.split(x @ w_in * 0.2, 2, -1)
        padded = jnp.pad(u, ((0, 0), (3, 0), (0, 0)))
        u = jax.nn.silu(sum(padded[:, i : i + 40] * kernel[i] for i in range(4)))
        h = u @ w_x * 0.2
        dt, b, c = jax.nn.softplus(h[..., :24].mean(-1, keepdims=True) + u), h[..., 24:32], h[..., 32:]

        def step(state, t):
            u, dt, b, c = t
            state = jnp.exp(-jnp.exp(a) * dt[..., None]) * state + (dt * u)[..., None] * b[:, None]
            return state, jnp.einsum("bdn,bn->bd", state, c)

        time_first = lambda t: t.swapaxes(0, 1)
        _, y = jax.lax.scan(step, jnp.zeros((2, 32, 8)), tuple(map(time_first, (u, dt, b, c))))
        return (((time_first(y) + u) * jax.nn.silu(gate) @ w_out * 0.2) ** 2).mean()

    return jax.value_and_grad(loss, (0, 1, 2, 3, 4))(w_in, kernel, w_x, a, w_out)


@program((2, 60, 32), (32, 128), (32,), (32,))
def rwkv_mixing(jax, jnp, x, w, decay, bonus):
    """Weighted averages of the past with a decay for each channel, kept stable by their largest exponent."""
    before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    r, k, v, g = jnp.split((0.5 * x + 0.5 * before) @ w * 0.2, 4, -1)
    rate = -jnp.exp(decay)

    def step(state, t):
        a, b, top = state
        k, v = t
        best = jnp.maximum(top, bonus + k)
        e1, e2 = jnp.exp(top - best), jnp.exp(bonus + k - best)
        y = (e1 * a + e2 * v) / (e1 * b + e2)
        best = jnp.maximum(top + rate, k)
        e1, e2 = jnp.exp(top + rate - best), jnp.exp(k - best)
        return (e1 * a + e2 * v, e1 * b + e2, best), y

    zeros = jnp.zeros((2, 32))
    _, y = jax.lax.scan(step, (zeros, zeros, zeros - 1e9), (k.swapaxes(0, 1), v.swapaxes(0, 1)))
    return jax.nn.sigmoid(r) * y.swapaxes(0, 1) * jax.nn.silu(g)


@program((64, 128), (128, 128), (128, 128), (128, 4), (4, 128), (128, 4), (4, 128), integers(64, high=10))
def low_rank_adaptation(jax, jnp, x, w1, w2, a1, b1, a2, b2, labels):
    """Two frozen layers with adapters of rank four: a step of Adam for the adapters."""

    def loss(p):
        h = jax.nn.relu(x @ (w1 + 0.5 * p[0] @ p[1]) * 0.1)
        logits = (h @ (w2 + 0.5 * p[2] @ p[3]) * 0.1)[:, :10]
        return -jax.nn.log_softmax(logits)[jnp.arange(64), labels].mean()

    p = tuple(0.1 * each for each in (a1, b1, a2, b2))
    value, g = jax.value_and_grad(loss)(p)

    def update(p, g):
        m, v = 0.1 * g, 0.001 * g**2
        return p - 1e-3 * (m / (1 - 0.9)) / (jnp.sqrt(v / (1 - 0.999)) + 1e-8)

    return value, jax.tree.map(update, p, g)


@program((50, 32), (32, 32), (32, 50))
def beam_search(jax, jnp, embedding, w, out):
    """The four best sequences of twenty tokens from a recurrent network."""

    def step(state, _):
        h, scores, tokens = state
        h = jnp.tanh(embedding[tokens] + h @ w * 0.2)
        log_p = jax.nn.log_softmax(h @ out)
        best, flat = jax.lax.top_k((scores[:, None] + log_p).reshape(-1), 4)
        parent, token = flat // 50, flat % 50
        return (h[parent], best, token), (parent, token)

    start = (jnp.zeros((4, 32)), jnp.array([0.0, -1e9, -1e9, -1e9]), jnp.zeros(4, int))
    (_, scores, _), (parents, tokens) = jax.lax.scan(step, start, None, length=20)

    def back(beam, t):
        parent, token = t
        return parent[beam], token[beam]

    _, sequences = jax.lax.scan(back, jnp.arange(4), (parents, tokens), reverse=True)
    return scores, sequences.T


@program((512,), (4, 512, 768), (4, 512, 512), (4, 512, 2048), (4, 1024, 512), (4, 1, 256, 2, 64), (4, 1, 256, 2, 64),
         differentiable=False)
def decoding_step(jax, jnp, token, qkv, out, gates, down, keys, values):
    """The next token through four layers of stacked weights: eight heads share two of keys and values, which are kept."""
    x = token[None]
    for layer in range(4):
        h = rms_norm(jax, jnp, x, 1.0) @ qkv[layer]
        q, k, v = h[:, :512].reshape(1, 2, 4, 64), h[:, 512:640].reshape(1, 1, 2, 64), h[:, 640:].reshape(1, 1, 2, 64)
        k = jax.lax.dynamic_update_slice(keys[layer], k, (0, 100, 0, 0))
        v = jax.lax.dynamic_update_slice(values[layer], v, (0, 100, 0, 0))
        a = jax.nn.softmax(jnp.where(jnp.arange(256) <= 100, jnp.einsum("bhgd,bthd->bhgt", q, k) / 8, -jnp.inf))
        x = x + jnp.einsum("bhgt,bthd->bhgd", a, v).reshape(1, 512) @ (0.1 * out[layer])
        u, g = jnp.split(rms_norm(jax, jnp, x, 1.0) @ gates[layer], 2, -1)
        x = x + (jax.nn.silu(g) * u) @ (0.1 * down[layer])
    return x


@program((60, 48), (48, 96), (96, 60), KEY, differentiable=False)
def top_k_generation(jax, jnp, embedding, w1, w2, key):
    """Eight sequences of forty tokens, each drawn from the ten likeliest."""

    def step(state, k):
        h, tokens = state
        h = 0.9 * h + embedding[tokens]
        logits = jax.nn.gelu(h @ w1 * 0.2) @ w2 * 0.2
        values, indices = jax.lax.top_k(logits, 10)
        chosen = jax.random.categorical(k, values / 0.8)
        tokens = jnp.take_along_axis(indices, chosen[:, None], 1)[:, 0]
        return (h, tokens), tokens

    return jax.lax.scan(step, (jnp.zeros((8, 48)), jnp.arange(8)), jax.random.split(key, 40))[1].T


@program((4, 32, 32, 3), (192, 64), (65, 64), (64,), (64, 192), (64, 64), (64, 128), (128, 64), (64, 10), integers(4, high=10))
def vision_transformer(jax, jnp, images, patch, place, token, qkv, out, up, down, head, labels):
    """Sixteen patches and a class token, one layer; loss and gradients."""

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def loss(p):
        patch, place, token, qkv, out, up, down, head = p
        x = images.reshape(4, 4, 8, 4, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(4, 16, 192) @ patch
        x = jnp.concatenate([jnp.broadcast_to(token, (4, 1, 64)), x], 1) + place[:17]
        q, k, v = jnp.split((norm(x) @ qkv).reshape(4, 17, 4, 48).transpose(0, 2, 1, 3), 3, -1)
        a = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 4) @ v
        x = x + a.transpose(0, 2, 1, 3).reshape(4, 17, 64) @ out
        x = x + jax.nn.gelu(norm(x) @ up) @ down
        return -jax.nn.log_softmax(norm(x[:, 0]) @ head)[jnp.arange(4), labels].mean()

    return jax.value_and_grad(loss)(tuple(0.1 * p for p in (patch, place, token, qkv, out, up, down, head)))


@program((32, 256), (256, 128))
def int8_product(jax, jnp, x, w):
    """Weights by columns and activations by rows as eight bits; the product in 32 bits."""
    ws = jnp.abs(w).max(0) / 127
    xs = jnp.abs(x).max(1, keepdims=True) / 127
    wq = jnp.round(w / ws).astype(jnp.int8)
    xq = jnp.round(x / xs).astype(jnp.int8)
    y = jax.lax.dot_general(xq, wq, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
    return y.astype(jnp.float32) * xs * ws


@program((64, 64), (64, 64), (64, 10), integers(64, high=10))
def quantized_training(jax, jnp, x, w1, w2, labels):
    """Weights are rounded to four bits in groups of sixteen, gradients go straight through."""

    def rounded(w):
        groups = w.reshape(-1, 16)
        low, high = groups.min(1, keepdims=True), groups.max(1, keepdims=True)
        scale = (high - low) / 15
        q = (jnp.round((groups - low) / scale) * scale + low).reshape(w.shape)
        return w + jax.lax.stop_gradient(q - w)

    def loss(p):
        h = jax.nn.relu(x @ rounded(p[0]) * 0.1)
        return -jax.nn.log_softmax(h @ jnp.pad(rounded(p[1]), ((0, 0), (0, 6))) * 0.1)[jnp.arange(64), labels].mean()

    value, g = jax.value_and_grad(loss)((w1, w2))
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, (w1, w2), g)
