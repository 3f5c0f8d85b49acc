"""Where the gradients of a `vjp` function go: into Refs, out as values, or nowhere."""

from __future__ import annotations

from typing import Any

from jaxlite.core.filtering import boundary
from jaxlite.core.refs import Ref
from jaxlite.core.tracing import ref_methods
from jaxlite.core.tree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from jaxlite.core.tree_nodes import Partial, register_pytree_node
from jaxlite.traces.backward_logs import collecting
from jaxlite.traces.jvp import tangent_aval, zeros_of


class _Mark:
    """A word in place of a leaf: a pytree without leaves; all of a kind are equal."""

    __slots__ = ()

    def __eq__(self, other: Any) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class GradValue(_Mark):
    """Asks for a gradient as a value."""

    __slots__ = ()


class DontWant(_Mark):
    """Says that a gradient is not wanted."""

    __slots__ = ()


class GradRef(_Mark):
    """Stands in the result for a gradient that went into a Ref."""

    __slots__ = ()


class DidntWant(_Mark):
    """Stands in the result for a gradient that was not wanted."""

    __slots__ = ()


def _register(kind: type) -> None:
    register_pytree_node(kind, lambda mark: ((), None), lambda _, children: kind())


class NotNeeded(_Mark):
    """Stands for an argument that the backward pass does not need."""

    __slots__ = ()


class NotSaveable(_Mark):
    """Stands for an argument that the backward pass needs, and `vjp` was not to keep."""

    __slots__ = ()


for _kind in (GradValue, DontWant, GradRef, DidntWant, NotNeeded, NotSaveable):
    _register(_kind)


class VJP(Partial):
    """The function of cotangents that `vjp` gives. It is a pytree of the values that it keeps."""

    __module__ = "jaxlite.tree_util"
    args_res = property(lambda self: self.args[0], lambda self, kept: self._replace(args=(kept, *self.args[1:])),
                        doc="""For each argument what the backward pass keeps of it, or NotNeeded().

    It is a list that may be replaced, as its entries may, by the same arrays in another memory or computed again.""")
    opaque_residuals = property(lambda self: self.args[1], lambda self, kept: self._replace(args=(self.args[0], kept)),
                                doc="The other values that the backward pass keeps.")

    fun = property(lambda self: self.func, lambda self, fun: self._replace(func=fun),
                   doc="The function of what is kept and a cotangent. Libraries replace it, to make objects of it comparable.")
    in_tree = property(lambda self: self.func.in_tree, doc="The tree of the arguments.")
    out_tree = property(lambda self: self.func.out_tree, doc="The tree of the output.")
    out_nzs = property(lambda self: tree_unflatten(self.func.out_tree, self.func.nonzero_out),
                       doc="For each array of the output, whether it depends on the arguments.")

    want_logs = False

    def _replace(self, func: Any = None, args: Any = None) -> None:
        self.__setstate__((func or self.func, args or self.args, self.keywords, self.__dict__))  # type: ignore[attr-defined]

    def replace(self, **fields: Any) -> VJP:
        """The same with other values of some of `args_res`, `opaque_residuals`, `fun` and `want_logs`."""
        unknown = fields.keys() - {"args_res", "opaque_residuals", "fun", "want_logs"}
        if unknown:
            raise TypeError(f"a vjp function has no field {min(unknown)!r} to replace")
        made = _with_logs(self, self.want_logs)
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    @boundary
    def __call__(self, *args: Any, **keywords: Any) -> Any:
        with collecting() as log:
            found = self.func(*self.args, *args, **keywords)
        return (found, log) if self.want_logs else found

    @property
    def with_logs(self) -> VJP:
        """The same, but it gives (cotangents, log): the log is a dict of what `custom_vjp` rules inside have logged.

        A loop stacks what its steps log, `vmap` has a batch of it. What branches of a `cond` log is in a `CondSum`, with
        attributes `index`, the branch that ran, and `branches`, what each of them logged: zeros if it did not run.

        >>> import jaxlite
        >>> @jaxlite.custom_gradient(with_logs=True)
        ... def square(x):
        ...     return x ** 2, lambda g: ((2 * x * g,), {"arriving": g})
        >>> _, pull = jaxlite.vjp(square, 3.0)
        >>> pull.with_logs(1.0)
        ((Array(6., dtype=float32, weak_type=True),), {'arriving': Array(1., dtype=float32, weak_type=True)})
        """
        return _with_logs(self, True)

    def with_refs(self, *targets: Any) -> Any:
        """The same with targets for the gradients.

        Args: `targets` have the tree of the arguments of the differentiated function, with a Ref to add this gradient to, or
          `jaxlite.ad.GradValue()` for the gradient itself, or `jaxlite.ad.DontWant()`, for each array. In place of a Ref
          there is a Ref or `DontWant()`: it goes in with the cotangent of what the argument held in the end, zeros for nothing
          but reads, and comes out with that of what it held at first.
          Without targets it is the function as it was.
        Returns: a function of a cotangent. Where gradients went to Refs it gives `jaxlite.ad.GradRef()`.

        >>> import jaxlite, jaxlite.numpy as jnp
        >>> total = jaxlite.new_ref(jnp.ones(2))
        >>> _, pull = jaxlite.vjp(jnp.sin, jnp.zeros(2))
        >>> pull.with_refs(total)(jnp.ones(2))
        (GradRef(),)
        >>> total
        Ref([2., 2.], dtype=float32)
        """
        if not targets:
            return self
        func: Any = self.func
        tree, function, refs, avals = func.in_tree, func.function, func.refs, func.avals
        try:
            given = tree.flatten_up_to(targets)
            if not all(isinstance(each, (Ref, GradValue, DontWant)) for each in given):
                raise ValueError
        except ValueError:
            raise ValueError(
                "unexpected tree structure in the arguments to a VJP function's `with_refs` method.\n\nThe arguments to "
                "`with_refs` must match the pytree structure of the primal arguments of the differentiated function "
                f"{function}, {tree}: for each array a Ref to add its gradient to, a jaxlite.ad.GradValue() to have it "
                f"returned, or a jaxlite.ad.DontWant(). They have the structure {tree_flatten(targets)[1]}.") from None

        for place, (target, aval) in enumerate(zip(given, avals, strict=True)):
            if isinstance(target, Ref) and (target.shape, target.dtype) != (aval.shape, tangent_aval(aval).dtype):
                raise ValueError("unexpected JAX type (e.g. shape/dtype) for gradient ref passed to the VJP function's "
                                 f"`with_refs` method for {self._argument(place)}: got {target.aval!r}, but expected "
                                 f"Ref{{{tangent_aval(aval).str_short()}}}")
            if place in refs and isinstance(target, GradValue):
                raise ValueError(f"the gradient for {self._argument(place)}, which is Ref-typed, can't be returned as a value. "
                                 "In the arguments to the VJP function's `with_refs` method, give a Ref for it, or a "
                                 "jaxlite.ad.DontWant().")

        def pull(cotangent: Any) -> Any:
            of_last = [given[place][...] if isinstance(given[place], Ref) else zeros_of(tangent_aval(avals[place]))
                       for place in refs]
            results: Any = []
            found = self(cotangent, *[of_last] if refs else [], targets=[
                target if isinstance(target, Ref) else False if isinstance(target, DontWant) else None for target in given])
            gradients = tree.flatten_up_to(found[0] if self.want_logs else found)
            for place, (target, gradient) in enumerate(zip(given, gradients, strict=True)):
                if isinstance(target, Ref):
                    (ref_methods.set if place in refs else ref_methods.add)(target, ..., gradient)
                    results.append(GradRef())
                else:
                    results.append(gradient if isinstance(target, GradValue) else DidntWant())
            results = tree_unflatten(tree, results)
            return (results, found[1]) if self.want_logs else results

        return pull

    def _argument(self, place: int) -> str:
        func: Any = self.func
        path = tree_flatten_with_path(tree_unflatten(func.in_tree, func.avals))[0][place][0]
        return f"the argument at position args{keystr(path)} of the differentiated function {func.function}"


def _with_logs(pull: VJP, flag: bool) -> VJP:
    made = VJP(pull.func, *pull.args, **pull.keywords)
    made.want_logs = flag
    return made


class Pushforward(Partial):
    """The function of tangents that `linearize` gives. It is a pytree of the values that it keeps."""

    __module__ = "jaxlite.tree_util"
    out_nzs = VJP.out_nzs  # made when asked for: containers of libraries may hold nothing but arrays


register_pytree_node(Pushforward, lambda each: ((each.args, each.keywords), each.func),
                     lambda func, children: Pushforward(func, *children[0], **children[1]))
register_pytree_node(VJP, lambda each: ((each.args, each.keywords), (each.func, each.want_logs)),
                     lambda kept, children: _with_logs(VJP(kept[0], *children[0], **children[1]), kept[1]))
