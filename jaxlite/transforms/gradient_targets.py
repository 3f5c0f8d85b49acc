"""Where the gradients of a `vjp` function go: into Refs, out as values, or nowhere."""

from __future__ import annotations

from typing import Any

from jaxlite.core.refs import Ref
from jaxlite.core.tracing import ref_methods
from jaxlite.core.tree import Partial, register_pytree_node, tree_flatten, tree_unflatten


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


for _kind in (GradValue, DontWant, GradRef, DidntWant, NotNeeded):
    _register(_kind)


class VJP(Partial):
    """The function of cotangents that `vjp` gives. It is a pytree of the values that it keeps."""

    __module__ = "jaxlite.tree_util"
    args_res = property(lambda self: self.args[0], doc="""For each argument what the backward pass keeps of it, or NotNeeded().

    It is a list whose entries may be replaced, by the same arrays in another memory or computed again.""")
    opaque_residuals = property(lambda self: self.args[1], doc="The other values that the backward pass keeps.")

    in_tree = property(lambda self: self.func.in_tree, doc="The tree of the arguments.")
    out_tree = property(lambda self: self.func.out_tree, doc="The tree of the output.")

    def with_refs(self, *targets: Any) -> Any:
        """The same with targets for the gradients.

        Args: `targets` have the tree of the arguments of the differentiated function, with a Ref to add this gradient to, or
          `jaxlite.ad.GradValue()` for the gradient itself, or `jaxlite.ad.DontWant()`, for each array.
        Returns: a function of a cotangent. Where gradients went to Refs it gives `jaxlite.ad.GradRef()`.

        >>> import jaxlite, jaxlite.numpy as jnp
        >>> total = jaxlite.new_ref(jnp.ones(2))
        >>> _, pull = jaxlite.vjp(jnp.sin, jnp.zeros(2))
        >>> pull.with_refs(total)(jnp.ones(2))
        (GradRef(),)
        >>> total
        Ref([2., 2.], dtype=float32)
        """
        tree, function = self.func.in_tree, self.func.function  # type: ignore[attr-defined]
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

        def pull(cotangent: Any) -> Any:
            results: list[Any] = []
            for target, gradient in zip(given, tree_flatten(self(cotangent))[0], strict=True):
                if isinstance(target, Ref):
                    ref_methods.add(target, ..., gradient)
                    results.append(GradRef())
                else:
                    results.append(gradient if isinstance(target, GradValue) else DidntWant())
            return tree_unflatten(tree, results)

        return pull


register_pytree_node(VJP, lambda each: ((each.args, each.keywords), each.func),
                     lambda func, children: VJP(func, *children[0], **children[1]))
