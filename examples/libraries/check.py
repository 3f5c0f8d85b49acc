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

# Of the tests that come with a source distribution: files, folders and options. What takes many minutes, or asks the network,
# is not among them. The distribution of equinox has no tests; numpyro's has those of its distributions and tools alone.
TESTS = {
    "optax": "optax --ignore=optax/_src/alias_test.py --ignore=optax/contrib/_common_test.py",
    "flax": "tests/core tests/linen tests/nnx tests/configurations_test.py tests/cursor_test.py tests/early_stopping_test.py "
            "tests/jax_utils_test.py tests/pickle_test.py tests/serialization_test.py tests/traceback_util_test.py "
            "tests/struct_test.py tests/traverse_util_test.py --ignore=tests/nnx/integration_test.py",
    "numpyro": "test/test_handlers.py test/test_constraints.py test/test_diagnostics.py test/test_util.py test/test_compile.py "
               "test/test_distributions_util.py test/test_flows.py test/test_nn.py test/test_optimizers.py",
    "chex": "chex",
}

# Tests that pass with JAX and are not expected to pass with jaxlite: docs/libraries.md says why.
NOT_HERE = {
    "optax": r"linear_algebra_test.py::LinearAlgebraTest::test_nnls",
}


def run(command: list[str], folder: Path, with_jax: bool) -> str:
    """What a command prints, from a folder; with JAX it gets the libraries of this environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX", "PYTHON"))}
    environment["PYTHONPATH"] = sysconfig.get_path("purelib") if with_jax else str(ROOT)
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=7200)
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
    pytest = ["-m", "pytest", "-p", "no:cacheprovider", "-rfE", "--tb=no", "--color=no", *TESTS[library].split()]
    results = []
    for command, with_jax in (([sys.executable, "-m", "jaxlite"], False), ([jax], True)):
        if command[0] is None:
            continue
        out = run([*map(str, command), *pytest], place, with_jax)
        failed = set(re.findall(r"^(?:FAILED|ERROR|SUBFAILED(?:[\[(].*?[\])])*) (\S+)", out, re.MULTILINE))
        results.append((failed, out.strip().splitlines()[-1].strip("= ")))
    print(f"{library}: jaxlite {results[0][1]}" + (f"; JAX {results[1][1]}" if jax else ""), flush=True)
    worse = results[0][0] - (results[1][0] if jax else set())
    known = {each for each in worse if re.search(NOT_HERE.get(library, "$^"), each)}
    if known:
        print(f"  {len(known)} only here, as docs/libraries.md says")
    worse -= known
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
