"""`debug.breakpoint`: stops inside a traced function at run time, and shows the values of its variables.

At tracing, the frames of the user's code are recorded with their variables. At run time, the compiled program calls a
debugger on the terminal with the values of these variables.
"""

from __future__ import annotations

import cmd
import linecache
import pprint
import sys
import traceback
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple

from jaxlite.core import source
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree import tree_flatten
from jaxlite.core.values import ArrayImpl
from jaxlite.lax.callbacks import debug_callback

_SHOWN = 5  # lines before and after the current one


class Frame(NamedTuple):
    """A frame of the user's code. `variables` are those of the function; `world` the module's."""

    file: str
    line: int
    function: str
    variables: dict[str, Any]
    world: dict[str, Any]


def breakpoint(*, backend: str | None = None, filter_frames: bool = True, num_frames: int | None = None,
               ordered: bool = False, token: Any = None, **kwargs: Any) -> Any:
    """Stop at this point when the traced function runs, with a debugger on the terminal.

    Its commands are those of pdb: `p NAME` or any expression prints a value, `pp` neatly, `l` lists the text around the
    line, `bt` the frames, `u` and `d` go up and down, `c` goes on, `q` ends the program with an error. Values are arrays.

    Args:
      backend: "cli", or None for it.
      filter_frames: leave out frames of jaxlite itself.
      num_frames: how many frames are noted, the innermost; all by default.
      ordered: whether it happens in order with respect to other ordered callbacks.
      token: a pytree; the breakpoint comes after it was computed. It is returned.
      kwargs: `stdin` and `stdout`, files for the debugger.
    """
    if backend not in (None, "cli"):
        raise ValueError(f"the debugger {backend!r} is not known; there is 'cli'")
    frames = _frames(sys._getframe(1), filter_frames, num_frames)
    values, places, plain = [], [], []
    for number, frame in enumerate(frames):
        kept: dict[str, Any] = {}
        for name, value in frame.variables.items():
            with warnings.catch_warnings():  # of generators and the like, which are leaves
                warnings.simplefilter("ignore")
                leaves, tree = tree_flatten(value)
            if any(isinstance(leaf, (Tracer, ArrayImpl)) for leaf in leaves) and all(
                    not isinstance(leaf, Tracer) or leaf._trace.alive for leaf in leaves):
                arrays = [index for index, leaf in enumerate(leaves) if isinstance(leaf, (Tracer, ArrayImpl))]
                values += [leaves[index] for index in arrays]
                places.append((number, name, tree, arrays, [None if index in arrays else leaf
                                                            for index, leaf in enumerate(leaves)]))
            else:
                kept[name] = value
        plain.append(frame._replace(variables=kept))

    def stop(arrays: Sequence[Any], _: Any) -> None:
        rest = iter(arrays)
        filled = [frame._replace(variables=dict(frame.variables)) for frame in plain]
        for number, name, tree, indices, leaves in places:
            leaves = list(leaves)
            for index in indices:
                leaves[index] = next(rest)
            filled[number].variables[name] = tree.unflatten(leaves)
        Debugger(filled, **kwargs).run()

    debug_callback(stop, values, token, ordered=ordered)
    return token


def _frames(frame: FrameType | None, filtered: bool, limit: int | None) -> list[Frame]:
    found: list[Frame] = []
    while frame is not None and (limit is None or len(found) < limit):
        file = frame.f_code.co_filename
        if not (filtered and source.is_own_file(file)):
            variables = {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)
            found.append(Frame(file, frame.f_lineno, frame.f_code.co_name, variables, frame.f_globals))
        frame = frame.f_back
    return found


class Quit(Exception):
    """The user ended the program from the debugger."""


class Debugger(cmd.Cmd):
    """The debugger: a frame is chosen, the innermost first."""

    prompt = "(jdb) "

    def __init__(self, frames: list[Frame], stdin: Any = None, stdout: Any = None):
        super().__init__(completekey="tab", stdin=stdin or sys.stdin, stdout=stdout or sys.stdout)
        self.use_rawinput = stdin is None
        self.frames, self.number = frames, 0

    def run(self) -> None:
        """Take commands until one goes on."""
        self.say("Entering jdb:")
        self.cmdloop()

    def say(self, text: str) -> None:
        self.stdout.write(text + "\n")
        self.stdout.flush()

    @property
    def frame(self) -> Frame:
        return self.frames[self.number]

    def evaluate(self, expression: str) -> Any:
        return eval(expression, {**self.frame.world, **self.frame.variables})

    def show(self, expression: str, form: Any) -> None:
        try:
            self.say(form(self.evaluate(expression)))
        except Exception as error:
            self.say("*** " + traceback.format_exception_only(error)[-1].strip())

    def default(self, line: str) -> None:
        """Any expression is evaluated."""
        self.show(line, repr)

    def do_EOF(self, line: str) -> bool:
        """Go on where there is no input."""
        return True

    def emptyline(self) -> bool:
        return False

    def do_p(self, line: str) -> None:
        """p EXPRESSION: print a value."""
        self.show(line, repr)

    def do_pp(self, line: str) -> None:
        """pp EXPRESSION: print a value neatly."""
        self.show(line, pprint.pformat)

    def do_list(self, line: str) -> None:
        """l(ist): the text around the line."""
        self.say(f"> {self.frame.file}({self.frame.line})")
        for number in range(max(1, self.frame.line - _SHOWN), self.frame.line + _SHOWN + 1):
            text = linecache.getline(self.frame.file, number)
            if text:
                self.say(f"{'->' if number == self.frame.line else '  '}  {text.rstrip()}")

    def do_bt(self, line: str) -> None:
        """bt, w(here): the frames, the innermost last."""
        self.say("Traceback:")
        for number, frame in reversed(list(enumerate(self.frames))):
            self.say(f"{'>' if number == self.number else ' '} File \"{frame.file}\", line {frame.line}, in {frame.function}")
            self.say(f"      {linecache.getline(frame.file, frame.line).strip()}")

    def do_up(self, line: str) -> None:
        """u(p): the frame of the caller."""
        if self.number + 1 == len(self.frames):
            self.say("At topmost frame.")
        else:
            self.number += 1
        self.do_list("")

    def do_down(self, line: str) -> None:
        """d(own): the frame that was called."""
        if self.number == 0:
            self.say("At bottommost frame.")
        else:
            self.number -= 1
        self.do_list("")

    def do_args(self, line: str) -> None:
        """a(rgs): the variables of the frame."""
        for name, value in self.frame.variables.items():
            self.say(f"{name} = {value!r}")

    def do_continue(self, line: str) -> bool:
        """c(ontinue): go on."""
        return True

    def do_quit(self, line: str) -> bool:
        """q(uit): end the program."""
        raise Quit("the program was ended from the debugger")

    do_l, do_w, do_where, do_u, do_d, do_a, do_c, do_cont, do_q, do_exit = (
        do_list, do_bt, do_bt, do_up, do_down, do_args, do_continue, do_continue, do_quit, do_quit)
