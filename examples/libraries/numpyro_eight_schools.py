"""numpyro: the eight schools, sampled with the No-U-Turn Sampler; prints posterior means."""

import sys

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from numpyro.infer.reparam import TransformReparam

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(errors, effects=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(errors)), \
            numpyro.handlers.reparam(config={"theta": TransformReparam()}):
        theta = numpyro.sample("theta", dist.TransformedDistribution(
            dist.Normal(0.0, 1.0), dist.transforms.AffineTransform(mu, tau)))
        numpyro.sample("obs", dist.Normal(theta, errors), obs=effects)


def main(draws=300):
    sampler = MCMC(NUTS(eight_schools), num_warmup=min(200, draws), num_samples=draws, progress_bar=False)
    sampler.run(jax.random.key(0), ERRORS, effects=EFFECTS)
    samples = sampler.get_samples()
    # Rounding sends two chains apart after some steps, so only what all of them agree on is the same everywhere.
    near = [abs(float(samples[name].mean()) - usual) < 1 for name, usual in (("mu", 4.4), ("tau", 3.6))]
    print(f"mu and tau near 4.4 and 3.6: {all(near)}, draws {samples['theta'].shape}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
