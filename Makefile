# Every target makes the environments it needs; where they are up to date with pyproject.toml, nothing is installed.
#   make demo         a small GPT learns, then programs through every stage, with times
#   make test         the suite, on the oldest supported jaxlib that this Python can install
#   make test-latest  the suite on the newest supported jaxlib, with the code that users get (slower to compile), where a Python >= 3.12 is present
#   make test-passes  the tests of values once more, with what passes do to large arrays done to their small ones
#   make test-accelerators  compile for GPUs and TPUs that are not here; fetches their plugins, 300 MB; needs a Python >= 3.12
#   make test-jax     signatures, and the same programs, with jaxlite and with JAX: what differs; JAX_ARGS="--seed 1 --sample 300 --only jnp.sort";
#                     JAX_ARGS="--kind fresh --seed 7" draws all of them anew, and counts by areas
#   make bench        jaxlite beside JAX, results written to benchmarks/RESULTS.md and docs/benchmarks.png
#   make bench-quick  the same, coarsely and with fewer programs, in about three minutes; it writes nothing
#   make bench-fusion the part of bench that measures fusion barriers, on the newest jaxlib; needs a Python >= 3.12
#   make bench-random SEEDS=0-59  programs put together at random from these seeds, on both sides
#   make test-libraries  optax, equinox, flax, numpyro and chex, unmodified: their examples and own tests beside JAX
#   make bench-libraries  the time from the start of a process to its first training step with these libraries, beside JAX
#   make lint         ruff and mypy
#   make docs         build the documentation site in docs/_build
#   make stubs        write the .pyi files that type checkers read
#   make clean        remove caches and builds; make distclean removes the environments too

PYTHON ?= python3
PYTEST_ARGS ?= -n auto
JAX_ARGS ?=

# The range of jaxlib versions stands in pyproject.toml alone.
oldest_jaxlib := $(shell sed -n 's/.*"jaxlib>=\([0-9.]*\),.*/\1/p' pyproject.toml)

# $(call usable,PYTHON,MINOR): does PYTHON run, is it 3.MINOR or newer, and can it make environments?
usable = "$(1)" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, $(2)))' >/dev/null 2>&1

# $(call environment,DIR,PYTHON): make DIR unless it holds a working pip already.
environment = $(1)/bin/python -m pip --version >/dev/null 2>&1 || $(2) -m venv --clear $(1)

pip_install = -m pip install --quiet --disable-pip-version-check

.PHONY: stubs docs demo test test-latest test-passes test-jax test-accelerators bench bench-quick bench-fusion bench-fusion-quick bench-random test-libraries bench-libraries lint clean distclean

demo: .venv/.stamp
	.venv/bin/python -m compileall -q jaxlite lowering
	.venv/bin/python examples/demo.py

test: .venv/.stamp
	.venv/bin/python -m pytest $(PYTEST_ARGS)

# The folders about values once more, with what passes do to large arrays done to small ones.
test-passes: .venv/.stamp
	TESTS_SMALLEST=1 .venv/bin/python -m pytest $(PYTEST_ARGS) $(addprefix tests/,lax nn numpy random scipy state transforms)

test-jax: .venv/.stamp .venv-jax/.stamp
	.venv/bin/python tests/beside_jax/signatures.py
	.venv/bin/python tests/beside_jax/compare.py $(JAX_ARGS)

bench: .venv/.stamp .venv-jax/.stamp
	.venv/bin/python -m benchmarks.run --write
	$(MAKE) bench-fusion

bench-quick: .venv/.stamp .venv-jax/.stamp
	.venv/bin/python -m benchmarks.run --quick
	$(MAKE) bench-fusion-quick

test-libraries: .venv-libraries/.stamp .venv-jax/.stamp
	.venv-libraries/bin/python examples/libraries/check.py --tests --jax $(CURDIR)/.venv-jax/bin/python

bench-libraries: .venv-libraries/.stamp .venv-jax/.stamp
	.venv-libraries/bin/python -m benchmarks.libraries --jax $(CURDIR)/.venv-jax/bin/python

# The libraries without jax, which they all depend on.
.venv-libraries/.stamp: examples/libraries/requirements.txt .venv/.stamp
	$(call environment,.venv-libraries,.venv/bin/python)
	jaxlib=$$(.venv/bin/python -c 'from importlib.metadata import version; print(version("jaxlib"))') \
	  && .venv-libraries/bin/python $(pip_install) "jaxlib==$$jaxlib"
	.venv-libraries/bin/python $(pip_install) --no-deps -r examples/libraries/requirements.txt
	.venv-libraries/bin/python $(pip_install) --no-deps -e .
	touch $@

lint: .venv/.stamp
	.venv/bin/python -m ruff check .
	.venv/bin/python -m mypy

docs: .venv-docs/.stamp
	.venv-docs/bin/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "docs/_build/index.html"

.venv-docs/.stamp: pyproject.toml
	@$(call usable,$(PYTHON),11) || { echo "the documentation needs Python >= 3.11 with venv"; exit 1; }
	$(call environment,.venv-docs,$(PYTHON))
	.venv-docs/bin/python $(pip_install) -e '.[docs]'
	touch $@
stubs: .venv/.stamp
	.venv/bin/python docs/make_stubs.py

clean:
	rm -rf build dist docs/_build docs/examples docs/reference *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -path './.venv*' -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean
	rm -rf .venv .venv-docs .venv-latest .venv-accelerators .venv-jax .venv-jax-latest

.venv/.stamp: pyproject.toml
	@$(call usable,$(PYTHON),11) || { echo "jaxlite needs Python >= 3.11 with venv; '$(PYTHON)' is not; try make PYTHON=python3.12"; exit 1; }
	$(call environment,.venv,$(PYTHON))
	.venv/bin/python $(pip_install) -e '.[dev,examples]' jaxlib==$(oldest_jaxlib) \
	  || .venv/bin/python $(pip_install) -e '.[dev,examples]'
	touch $@

# The newest JAX for the jaxlib of .venv and of .venv-latest, for the benchmarks alone.
.venv-jax/.stamp .venv-jax-latest/.stamp: .venv-jax%/.stamp: .venv%/.stamp
	$(call environment,.venv-jax$*,.venv$*/bin/python)
	jaxlib=$$(.venv$*/bin/python -c 'from importlib.metadata import version; print(version("jaxlib"))') \
	  && .venv-jax$*/bin/python $(pip_install) "jaxlib==$$jaxlib" "jax<=$$jaxlib"
	touch $@

newer_pythons = $(PYTHON) python3.12 python3.13 python3.14 $(wildcard $(HOME)/.pyenv/versions/3.1[2-9]*/bin/python)
ifneq ($(filter test-latest test-accelerators bench-fusion bench-fusion-quick bench-random .venv%latest/.stamp .venv-accelerators/.stamp,$(MAKECMDGOALS)),)
newer_python := $(shell for p in $(newer_pythons); do $(call usable,$$p,12) && { echo $$p; break; }; done)
endif

ifeq ($(newer_python),)
test-latest test-accelerators:
	@echo "$@: skipped, found no Python >= 3.12, which the newest jaxlib needs"

bench-fusion bench-fusion-quick bench-random:
	@echo "$@: skipped, found no Python >= 3.12, which the newest jaxlib needs"
else
test-latest: .venv-latest/.stamp
	TESTS_OWN_CODE=1 .venv-latest/bin/python -m pytest $(PYTEST_ARGS)

test-accelerators: .venv-accelerators/.stamp
	.venv-accelerators/bin/python -m pytest tests/accelerators

# The plugins alone, without NVIDIA's libraries: compiling needs none of them.
.venv-accelerators/.stamp: pyproject.toml
	$(call environment,.venv-accelerators,$(newer_python))
	.venv-accelerators/bin/python $(pip_install) -e . pytest hypothesis
	jaxlib=$$(.venv-accelerators/bin/python -c 'from importlib.metadata import version; print(version("jaxlib"))') \
	  && .venv-accelerators/bin/python $(pip_install) --no-deps "jax-cuda13-pjrt==$$jaxlib" "jax-cuda13-plugin==$$jaxlib" libtpu
	touch $@

fusion_run = .venv-latest/bin/python -m benchmarks.run --only fusion --jax-python .venv-jax-latest/bin/python

# The chart is drawn with the matplotlib of .venv.
bench-fusion: .venv/.stamp .venv-latest/.stamp .venv-jax-latest/.stamp
	$(fusion_run) --write
	.venv/bin/python -m benchmarks.run --chart

bench-fusion-quick: .venv-latest/.stamp .venv-jax-latest/.stamp
	$(fusion_run) --quick

SEEDS ?= 0-59
bench-random: .venv-latest/.stamp .venv-jax-latest/.stamp
	.venv-latest/bin/python -m benchmarks.paired $(SEEDS)
endif

.venv-latest/.stamp: pyproject.toml
	$(call environment,.venv-latest,$(newer_python))
	.venv-latest/bin/python $(pip_install) --upgrade -e '.[dev]' jaxlib
	touch $@
