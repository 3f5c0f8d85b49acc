"""Draws programs from the rules of grammar.txt, by areas: a seed gives as many that nobody has run before as are asked for.

A rule is `name = one | another`, and `<name>` stands for one of its alternatives, drawn anew at each place; `<2..7>` is a whole
number. Under `[area]`, each line is a program, its lines separated by `\\n`; of its alternatives, each is a program of its own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

PLACE = re.compile(r"<(?:(\w+)|(-?\d+)\.\.(\d+))>")
DEEP = 8  # how often one place may be replaced by rules that name further rules; beyond that, the first alternative is taken


def read(text: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The rules, and the programs of each area."""
    rules: dict[str, list[str]] = {}
    areas: dict[str, list[str]] = {}
    into: list[str] = []
    joined = re.sub(r"\n\s+(?=\|)", " ", text)  # a line that begins with a bar goes on with the one before it
    for line in joined.splitlines():
        if line.startswith("["):
            into = areas.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            rule = None if areas else re.match(r"(\w+) = (.*)", line)
            if rule:
                rules[rule[1]] = rule[2].split(" | ")
            else:
                into += line.split(" | ")
    return rules, areas


class Grammar:
    def __init__(self, text: str) -> None:
        self.rules, self.areas = read(text)

    def fill(self, template: str, rng: random.Random, depth: int = 0) -> str:
        def replaced(found: re.Match[str]) -> str:
            name, low, high = found.groups()
            if name is None:
                return str(rng.randint(int(low), int(high)))
            if name not in self.rules:
                return found[0]  # a comparison
            alternatives = self.rules[name]
            return self.fill(alternatives[0] if depth > DEEP else rng.choice(alternatives), rng, depth + 1)

        return PLACE.sub(replaced, template)

    def programs(self, seed: int, each: int) -> Iterator[tuple[str, str]]:
        """`each` programs of every line of the grammar, with the names of their areas."""
        for area, templates in self.areas.items():
            rng = random.Random(f"{seed} {area}")
            for template in templates:
                for _ in range(each):
                    yield area, self.fill(template, rng).replace("\\n", "\n")


def drawn(seed: int, each: int = 4) -> Iterator[tuple[str, str]]:
    return Grammar((Path(__file__).parent / "grammar.txt").read_text()).programs(seed, each)
