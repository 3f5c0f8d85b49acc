"""The libraries run unmodified: each example prints the same with jaxlite as with JAX, and so many of their own tests pass.

    python examples/libraries/check.py [--jax PYTHON] [--tests] [NAME ...]

Run it with a Python that has jaxlite and the libraries, and no jax; `make test-libraries` makes one. `--jax` names a Python
that has jax; it finds the libraries where this one has them. `--tests` adds the libraries' own tests, which are taken from
their source distributions.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EXAMPLES = ("optax_mlp", "equinox_mlp", "flax_linen_cnn", "flax_nnx_cnn", "numpyro_eight_schools", "chex_dataclass")

# Of the tests that come with a source distribution: files or folders. What tests more than one device, or takes minutes, is
# not among them.
TESTS = {
    "optax": "optax/losses optax/transforms optax/tree_utils optax/projections optax/_src/base_test.py "
             "optax/_src/combine_test.py optax/_src/numerics_test.py optax/_src/transform_test.py optax/_src/update_test.py "
             "optax/_src/utils_test.py",
    "flax": "tests/core/core_lift_test.py tests/core/core_scope_test.py tests/core/design "
            "tests/linen/linen_linear_test.py tests/linen/linen_module_test.py "
            "tests/linen/linen_combinators_test.py tests/linen/linen_transforms_test.py tests/nnx/module_test.py "
            "tests/nnx/rngs_test.py tests/nnx/state_test.py tests/nnx/optimizer_test.py "
            "tests/nnx/graph_utils_test.py tests/nnx/nn/linear_test.py tests/nnx/nn/conv_test.py",
    "numpyro": "test/test_handlers.py test/test_constraints.py test/test_diagnostics.py test/test_util.py",
    "chex": "chex/_src/asserts_test.py chex/_src/asserts_internal_test.py chex/_src/dataclass_test.py "
            "chex/_src/dimensions_test.py chex/_src/variants_test.py chex/_src/warnings_test.py",
}


def run(command: list[str], folder: Path, with_jax: bool) -> str:
    """What a command prints, from a folder; with JAX it gets the libraries of this environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX", "PYTHON"))}
    environment["PYTHONPATH"] = sysconfig.get_path("purelib") if with_jax else str(ROOT)
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=1800)
    return done.stdout


def example(name: str, jax: str | None) -> bool:
    """Run an example on both sides. Gives whether they print the same."""
    ours = run([sys.executable, "-m", "jaxlite", str(HERE / f"{name}.py")], HERE, False).strip().splitlines()[-1:]
    theirs = run([jax, str(HERE / f"{name}.py")], HERE, True).strip().splitlines()[-1:] if jax else ours
    same = ours == theirs and not (ours and "Error" in ours[0])
    print(f"{name:24} {ours[0] if ours else 'nothing':45} {'' if same else f'JAX: {theirs}'}", flush=True)
    return same


def source_of(library: str, folder: Path) -> Path:
    """The unpacked source distribution of a library, of the version that is installed."""
    place = folder / f"{library}-{version(library)}"
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                        "--no-binary", library, f"{library}=={version(library)}", "--dest", str(folder)], check=True)
        with tarfile.open(f"{place}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return place


def tests(library: str, jax: str | None, folder: Path) -> bool:
    """Run a library's own tests on both sides. Gives whether none fails here that passes there."""
    place = source_of(library, folder)
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", "--tb=no", "--color=no", *TESTS[library].split()]
    results = []
    for command, with_jax in (([sys.executable, "-m", "jaxlite"], False), ([jax], True)):
        if command[0] is None:
            continue
        out = run([*map(str, command), *pytest], place, with_jax)
        failed = set(re.findall(r"^(?:FAILED|ERROR|SUBFAILED\S*) (\S+)", out, re.MULTILINE))
        results.append((failed, out.strip().splitlines()[-1]))
    print(f"{library}: jaxlite {results[0][1]}" + (f"; JAX {results[1][1]}" if jax else ""), flush=True)
    worse = results[0][0] - (results[1][0] if jax else set())
    for each in sorted(worse):
        print(f"  only here: {each}")
    return not worse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="examples or libraries; all of them without")
    parser.add_argument("--jax", help="a Python that has jax")
    parser.add_argument("--tests", action="store_true", help="run the libraries' own tests too")
    arguments = parser.parse_args()
    folder = Path(sys.prefix) / "sources"
    good = [example(name, arguments.jax) for name in EXAMPLES if not arguments.names or name in arguments.names]
    if arguments.tests:
        good += [tests(name, arguments.jax, folder) for name in TESTS if not arguments.names or name in arguments.names]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
