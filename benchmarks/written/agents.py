"""Reinforcement learning: losses, advantages, environments, tables, bandits."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, integers, program


@program((64, 4), (4, 64), (64, 2), integers(64), (64,), (64,), (64,))
def ppo(jax, jnp, observed, a, b, actions, advantages, returns, old):
    """The clipped loss with values and entropy, and its gradient."""

    def loss(p):
        h = jnp.tanh(observed @ p[0])
        scores = jax.nn.log_softmax(h @ p[1])
        log_p = jnp.take_along_axis(scores, (actions % 2)[:, None], 1)[:, 0]
        r = jnp.exp(log_p - old * 0.1)
        advantage = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy = -jnp.minimum(r * advantage, jnp.clip(r, 0.8, 1.2) * advantage).mean()
        v = h @ p[1][:, 0]
        return policy + 0.5 * ((v - returns) ** 2).mean() + 0.01 * (jnp.exp(scores) * scores).sum(1).mean()

    return jax.value_and_grad(loss)((a, b))


@program((100,), (100,))
def generalized_advantages(jax, jnp, rewards, values):
    def step(a, d):
        a = d + 0.95 * 0.99 * a
        return a, a

    d = rewards + 0.99 * jnp.append(values[1:], 0) - values
    return jax.lax.scan(step, 0.0, d, reverse=True)[1]


@program((64, 4), integers(64), (64,), (64, 4), (4, 64), (64, 2))
def dqn(jax, jnp, state, action, reward, after, w1, w2):
    """The Huber loss of a Q-network, and its gradient."""
    q = lambda p, s: jax.nn.relu(s @ p[0]) @ p[1]

    def loss(p):
        target = reward + 0.99 * jax.lax.stop_gradient(q(p, after).max(1))
        d = q(p, state)[jnp.arange(64), action % 2] - target
        return jnp.where(jnp.abs(d) < 1, 0.5 * d * d, jnp.abs(d) - 0.5).mean()

    return jax.value_and_grad(loss)((w1, w2))


@program(KEY, (4,), (4, 2))
def cart_pole(jax, jnp, key, start, weights):
    """Sixteen episodes of fifty steps with a random policy."""

    def environment(state, action):
        x, speed, t, turn = state
        force = jnp.where(action == 1, 10.0, -10.0)
        pushed = (force + 0.05 * turn**2 * jnp.sin(t)) / 1.1
        angular = (9.8 * jnp.sin(t) - jnp.cos(t) * pushed) / (0.5 * (4 / 3 - 0.1 * jnp.cos(t) ** 2 / 1.1))
        linear = pushed - 0.05 * angular * jnp.cos(t) / 1.1
        return jnp.array([x + 0.02 * speed, speed + 0.02 * linear, t + 0.02 * turn, turn + 0.02 * angular])

    def step(state, k):
        action = jax.random.categorical(k, state @ weights)
        state = environment(state, action)
        return jnp.where(jnp.abs(state[2]) > 0.2, start * 0.01, state), (state, action)

    episode = lambda k: jax.lax.scan(step, start * 0.01, jax.random.split(k, 50))[1]
    return jax.vmap(episode)(jax.random.split(key, 16))


@program(KEY, (30,), (30,))
def thompson_sampling(jax, jnp, key, a, b):
    """Thirty arms, by draws from Beta distributions."""
    a, b = jnp.abs(a) + 1, jnp.abs(b) + 1

    def step(state, k):
        a, b = state
        k1, k2 = jax.random.split(k)
        i = jax.random.beta(k1, a, b).argmax()
        r = jax.random.bernoulli(k2, 0.3 + 0.01 * i)
        return (a.at[i].add(r), b.at[i].add(1 - r)), i

    return jax.lax.scan(step, (a, b), jax.random.split(key, 20))


@program((10, 10), (10,))
def value_iteration(jax, jnp, rewards, start):
    scores = jnp.outer(rewards[0], rewards[1]).reshape(10, 10)[:, None]
    p = jax.nn.softmax(scores + jnp.stack([rewards] * 4, 1) * jnp.arange(4.0)[:, None], -1)

    def step(i, v):
        return (rewards[:, :4] + 0.9 * jnp.einsum("saj,j->sa", p, v)).max(1)

    return jax.lax.fori_loop(0, 100, step, start)


@program(KEY, differentiable=False)
def q_learning(jax, jnp, key):
    """A table for 25 places and four directions."""

    def step(state, k):
        q, x = state
        a, b, c = jax.random.split(k, 3)
        u = jnp.where(jax.random.uniform(a) < 0.1, jax.random.randint(b, (), 0, 4), q[x].argmax())
        y = (x + jnp.array([1, -1, 5, -5])[u]) % 25
        r = (y == 24).astype(float)
        q = q.at[x, u].add(0.1 * (r + 0.9 * q[y].max() - q[x, u]))
        return (q, y), r

    return jax.lax.scan(step, (jnp.zeros((25, 4)), 0), jax.random.split(key, 300))


@program((50, 6), (50,))
def reinforce(jax, jnp, states, rewards):
    returns = jax.lax.associative_scan(jnp.add, rewards, reverse=True)

    def loss(w):
        return -(jax.nn.log_softmax(states @ w)[:, 0] * (returns - returns.mean()) / returns.std()).mean()

    return jax.grad(loss)(jnp.zeros((6, 3)))


@program((64, 6), (64, 2), (64,), (64, 6), (8, 32), (32, 1), (6, 32), (32, 4), KEY)
def soft_actor_critic(jax, jnp, state, action, reward, after, q1, q2, p1, p2, key):
    """Both losses with their gradients: squashed normal actions, entropy, a target."""

    def policy(p, s, k):
        mean, log_std = jnp.split(jax.nn.relu(s @ p[0]) @ p[1] * 0.2, 2, -1)
        log_std = jnp.clip(log_std, -5, 2)
        z = jax.random.normal(k, mean.shape)
        raw = mean + jnp.exp(log_std) * z
        log_p = (-0.5 * z**2 - log_std - 0.92 - 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))).sum(-1)
        return jnp.tanh(raw), log_p

    value = lambda q, s, a: (jax.nn.relu(jnp.concatenate([s, a], -1) @ q[0]) @ q[1])[:, 0]
    k1, k2 = jax.random.split(key)
    target_q = (q1 * 0.9, q2 * 0.9)

    def critic(q):
        a, log_p = policy((p1, p2), after, k1)
        target = reward + 0.99 * (value(target_q, after, a) - 0.2 * log_p)
        return ((value(q, state, action) - jax.lax.stop_gradient(target)) ** 2).mean()

    def actor(p):
        a, log_p = policy(p, state, k2)
        return (0.2 * log_p - value((q1, q2), state, a)).mean()

    return jax.value_and_grad(critic)((q1, q2)), jax.value_and_grad(actor)((p1, p2))


@program((64, 16), (64, 16), (64, 16), (64, 16))
def v_trace(jax, jnp, rewards, values, log_new, log_old):
    """Corrected targets for sixteen actors that lag behind."""
    rho = jnp.exp(0.3 * (log_new - log_old))
    clipped = jnp.minimum(rho, 1.0)
    following = jnp.concatenate([values[1:], jnp.zeros((1, 16))])
    d = clipped * (rewards + 0.99 * following - values)

    def step(a, t):
        d, c = t
        a = d + 0.99 * c * a
        return a, a

    _, corrections = jax.lax.scan(step, jnp.zeros(16), (d, clipped), reverse=True)
    targets = values + corrections
    later = jnp.concatenate([targets[1:], jnp.zeros((1, 16))])
    return targets, clipped * (rewards + 0.99 * later - values)


@program((9,), KEY, differentiable=False)
def tree_search(jax, jnp, board, key):
    """Sixty-four rounds of upper confidence bounds over nine moves, each judged by random play of tic-tac-toe."""
    lines = jnp.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])

    def playout(first, k):
        def move(state, t):
            board, won = state
            i, k = t
            player = jnp.where(i % 2 == 0, 1, -1)
            free = jnp.where(board == 0, 0.0, -1e9)
            place = jnp.where(i == 0, first, jax.random.categorical(k, free))
            board = jnp.where((won == 0) & (board[place] == 0), board.at[place].set(player), board)
            return (board, jnp.where(won == 0, jnp.sign(board[lines].sum(1) // 3).sum(), won)), None

        start = (jnp.zeros(9, int), jnp.array(0))
        return jax.lax.scan(move, start, (jnp.arange(9), jax.random.split(k, 9)))[0][1]

    def round_(state, k):
        count, total = state
        bound = total / (count + 1e-6) + jnp.sqrt(2 * jnp.log(count.sum() + 1) / (count + 1e-6))
        i = bound.argmax()
        return (count.at[i].add(1.0), total.at[i].add(playout(i, k).astype(float))), i

    return jax.lax.scan(round_, (jnp.zeros(9), jnp.zeros(9)), jax.random.split(key, 64))


@program((200, 10), (8, 10))
def linear_bandit(jax, jnp, contexts, truth):
    """Eight arms with linear rewards: inverses are updated by rank one."""

    def step(state, x):
        inverse, b = state
        theta = jnp.einsum("aij,aj->ai", inverse, b)
        width = jnp.sqrt(jnp.einsum("i,aij,j->a", x, inverse, x))
        a = (theta @ x + width).argmax()
        reward = truth[a] @ x
        ax = inverse[a] @ x
        inverse = inverse.at[a].add(-jnp.outer(ax, ax) / (1 + x @ ax))
        return (inverse, b.at[a].add(reward * x)), (a, (truth @ x).max() - reward)

    return jax.lax.scan(step, (jnp.tile(jnp.eye(10), (8, 1, 1)), jnp.zeros((8, 10))), contexts)[1]
