"""Pytrees: round trips, paths, registration, and words for mismatches."""

import copy
import dataclasses
import doctest
import functools
import inspect
import pickle
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxlite as jax
from jaxlite import tree, tree_util
from jaxlite.core import tree as core_tree
from jaxlite.core.tree import broadcast_prefix, flatten_axes
from jaxlite.core.tree_differences import equality_errors, prefix_errors
from jaxlite.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey, keystr

Point = namedtuple("Point", "x y")


@tree_util.register_pytree_node_class
class Bag:
    def __init__(self, *items, label=None):
        self.items, self.label = items, label

    def tree_flatten(self):
        return self.items, self.label

    @classmethod
    def tree_unflatten(cls, label, items):
        return cls(*items, label=label)

    def __eq__(self, other):
        return isinstance(other, Bag) and (self.items, self.label) == (other.items, other.label)


@tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    weight: object
    bias: object
    name: str = tree.static(default="layer")


def containers(children):
    lists = st.lists(children, max_size=3)
    dicts = st.dictionaries(st.sampled_from("abcd"), children, max_size=3)
    return st.one_of(
        lists,
        lists.map(tuple),
        dicts,
        dicts.map(lambda d: OrderedDict(reversed(d.items()))),
        dicts.map(lambda d: defaultdict(list, d)),
        st.builds(Point, children, children),
        lists.map(lambda items: Bag(*items, label=len(items))),
        st.builds(Layer, children, children, st.sampled_from(["p", "q"])),
    )


TREES = st.recursive(st.one_of(st.none(), st.integers(0, 9)), containers, max_leaves=8)


def look_up(x, path):
    for key in path:
        match key:
            case SequenceKey():
                x = x[key.idx]
            case DictKey():
                x = x[key.key]
            case GetAttrKey():
                x = getattr(x, key.name)
            case FlattenedIndexKey():
                x = x.items[key.key]
    return x


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_round_trip(x):
    leaves, treedef = tree.flatten(x)
    assert tree.unflatten(treedef, iter(leaves)) == x
    assert treedef == tree.structure(x) and hash(treedef) == hash(tree.structure(x))
    assert tree.map(lambda leaf: leaf, x) == x
    assert tree.leaves(tree.map(lambda a, b: a - b, x, x)) == [0] * treedef.num_leaves
    assert list(equality_errors(x, x)) == prefix_errors(x, x) == []


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_paths_lead_to_the_leaves(x):
    pairs, treedef = tree.flatten_with_path(x)
    assert treedef == tree.structure(x)
    assert [leaf for _, leaf in pairs] == tree.leaves(x)
    assert all(look_up(x, path) == leaf for path, leaf in pairs)
    assert tree.leaves(tree.map_with_path(lambda path, leaf: look_up(x, path) - leaf, x)) == [0] * len(pairs)


@settings(max_examples=40, deadline=None)
@given(TREES, TREES)
def test_transposing_twice_changes_nothing(outer, inner):
    outer_def, inner_def = tree.structure(outer), tree.structure(inner)
    if not outer_def.num_leaves or not inner_def.num_leaves:
        return
    numbers = outer_def.compose(inner_def).unflatten(range(outer_def.num_leaves * inner_def.num_leaves))
    turned = tree.transpose(outer_def, inner_def, numbers)
    assert tree.structure(turned) == inner_def.compose(outer_def)
    assert tree.transpose(inner_def, outer_def, turned) == numbers
    assert tree.transpose(outer_def, None, numbers) == turned


@settings(max_examples=60, deadline=None)
@given(TREES, TREES)
def test_differences_are_found_exactly_when_structures_differ(x, y):
    assert bool(list(equality_errors(x, y))) == (tree.structure(x) != tree.structure(y))
    try:
        values = broadcast_prefix(x, y)
    except ValueError as error:
        assert prefix_errors(x, y) and all(p.split("tree", 1)[1] in str(error) for p in prefix_errors(x, y)[:8])
        with pytest.raises(ValueError, match="rest\\[0\\]"):
            tree.map(lambda a, b: a, x, y)
    else:
        assert prefix_errors(x, y) == []
        assert len(values) == len(tree.leaves(y))
        assert tree.leaves(tree.broadcast(x, y)) == values


def test_a_flatten_function_that_returns_no_pair_is_named():
    class Odd:
        pass

    tree_util.register_pytree_node(Odd, lambda x: 3, lambda aux, children: Odd())
    with pytest.raises(ValueError, match="should return a .children, aux_data. tuple, got 3"):
        tree.leaves(Odd())

    class NoChildren:
        pass

    tree_util.register_pytree_node(NoChildren, lambda x: (3, None), lambda aux, children: NoChildren())
    with pytest.raises(ValueError, match="where 'children' is iterable, got .3, None."):
        tree.leaves(NoChildren())


def test_leaf_order_and_containers():
    assert tree.leaves({"b": 1, "a": (None, [2, Point(3, 4)])}) == [2, 3, 4, 1]
    assert tree.leaves(OrderedDict([("b", 1), ("a", 2)])) == [1, 2]
    assert tree.leaves(defaultdict(int, b=1, a=2)) == [2, 1]

    class Named(dict):
        pass

    assert tree.leaves([Named(a=1)]) == [{"a": 1}]
    with pytest.raises(ValueError):
        tree.leaves({"a": 1, 2: 3})


def test_is_leaf():
    x = {"a": [1, (2, 3)], "b": None}
    assert tree.leaves(x, is_leaf=lambda n: isinstance(n, tuple)) == [1, (2, 3)]
    assert tree.leaves(x, is_leaf=lambda n: n is None) == [1, 2, 3, None]
    assert tree.map(lambda n, m: (n, m), {"a": [1]}, {"a": 2}, is_leaf=lambda n: isinstance(n, list)) == {"a": ([1], 2)}
    takes_path = dict(is_leaf=lambda path, n: len(path) == 1, is_leaf_takes_path=True)
    assert [n for _, n in tree.leaves_with_path(x, **takes_path)] == [[1, (2, 3)], None]
    assert tree.map_with_path(lambda path, n, m: m, x, {"a": 1, "b": 2}, **takes_path) == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match="boolean"):
        tree.leaves([1], is_leaf=lambda n: np.array([1, 2]))


def test_reductions():
    assert tree.reduce(lambda a, b: a + b, [1, (2, {"a": 3})]) == 6
    assert tree.reduce(lambda a, b: (a, b), [1], None) == (None, 1)
    with pytest.raises(TypeError):
        tree.reduce(lambda a, b: a, [])

    def join(a, b):
        return f"({a}{b})"

    assert tree.reduce_associative(join, list("abcdefg")) == "((a(bc))((de)(fg)))"
    assert tree.reduce_associative(join, ["a"], identity="i") == "a"
    assert tree.reduce_associative(join, [], identity=None) is None
    with pytest.raises(TypeError, match="identity"):
        tree.reduce_associative(join, [])
    assert tree.all([True, (1,)]) is True and tree.all([]) is True and tree.all([1, 0]) is False
    assert tree.all([[], 1], is_leaf=lambda n: n == []) is False


def test_transpose_edges():
    leaf, pair, none = tree.structure(0), tree.structure([0, 0]), tree.structure([])
    assert tree.transpose(none, tree.structure({"a": 0}), []) == {"a": []}
    assert tree.transpose(tree.structure([0]), none, [[]]) == []
    with pytest.raises(TypeError, match=r"tree\[0\]: expected a list of length 2, got a dict with keys 'a'"):
        tree.transpose(pair, pair, [{"a": 1}, {"a": 2}])
    with pytest.raises(ValueError, match="tree: expected a list of length 2, got a tuple of length 1"):
        tree.transpose(pair, None, (1,))
    with pytest.raises(TypeError, match="'b' is missing and 'c' is unexpected"):
        tree.transpose(pair, None, [{"a": 1, "b": 2}, {"a": 3, "c": 4}])
    with pytest.raises(ValueError, match="inner_treedef"):
        tree.transpose(none, None, [])
    assert tree.transpose(leaf, leaf, 5) == 5


def test_broadcast():
    assert tree.broadcast([1, 2], [(3, 4), {"a": 5}]) == [(1, 1), {"a": 2}]
    assert tree.broadcast(1, None) is None
    assert tree.broadcast([1, None], [(3, 4), {"a": 5}], is_leaf=lambda n: n is None) == [(1, 1), {"a": None}]
    with pytest.raises(ValueError, match=r"prefix_tree\[1\]: expected a dict with keys 'a', got a tuple of length 2"):
        tree.broadcast([1, (2, 3)], [(3, 4), {"a": 5}])


def test_treedefs():
    x = {"a": [1, Point(1, None)], "c": OrderedDict(b=1)}
    treedef = tree.structure(x)
    assert str(treedef) == (
        "PyTreeDef({'a': [*, CustomNode(namedtuple[Point], [*, None])], 'c': CustomNode(OrderedDict[('b',)], [*])})"
    )
    assert tree_util.treedef_children(treedef) == [tree.structure(x["a"]), tree.structure(x["c"])]
    assert tree_util.treedef_tuple(iter([tree.structure(1), tree.structure(None)])) == tree.structure((1, None))
    assert [tree_util.treedef_is_leaf(tree.structure(n)) for n in (1, None, (), [1])] == [True, True, True, False]
    for other in (pickle.loads(pickle.dumps(treedef)), copy.deepcopy(treedef)):
        assert other == treedef and other.unflatten([1, 1, 1]) == x
    for leaves in ([1], [1] * 4):
        with pytest.raises(ValueError, match="leaves"):
            tree.unflatten(treedef, leaves)


def test_one_level():
    assert tree_util.flatten_one_level({"b": [1], "a": 2}) == ((2, [1]), ("a", "b"))
    pairs, _ = tree_util.flatten_one_level_with_keys(Point(1, 2))
    assert list(pairs) == [(GetAttrKey("x"), 1), (GetAttrKey("y"), 2)]
    assert tree_util.flatten_one_level(None) == ((), None)
    for function in (tree_util.flatten_one_level, tree_util.flatten_one_level_with_keys):
        with pytest.raises(ValueError, match="int"):
            function(3)
    kinds = [list, dict, tuple, type(None), Point, OrderedDict, defaultdict, Bag, Layer, tree_util.Partial]
    assert all(map(tree_util.is_tree_node, kinds)) and not tree_util.is_tree_node(int)
    assert [tree_util.all_leaves(x) for x in ([1, 2], [None], [], [1, [2]])] == [True, False, True, False]
    assert tree_util.all_leaves([1, (2,)], is_leaf=lambda n: isinstance(n, tuple))


def test_keystr():
    path = (DictKey("a"), SequenceKey(0), GetAttrKey("x"), FlattenedIndexKey(3), "raw")
    assert keystr(path) == "['a'][0].x[<flat index 3>]raw"
    assert keystr(path, simple=True, separator="/") == "a/0/x/3/raw"
    assert keystr(path[:2], separator="/") == "['a']/[0]"
    assert keystr(()) == ""
    assert pickle.loads(pickle.dumps(path)) == path


def test_register_with_keys():
    class Keyed:
        def __init__(self, *items):
            self.items = items

    tree_util.register_pytree_with_keys(
        Keyed, lambda k: (((f".{i}", x) for i, x in enumerate(k.items)), None), lambda _, items: Keyed(*items)
    )
    assert tree.leaves(Keyed(1, [2])) == [1, 2]
    assert [keystr(path) for path, _ in tree.leaves_with_path(Keyed(1, [2]))] == [".0", ".1[0]"]
    with pytest.raises(ValueError, match="Duplicate"):
        tree_util.register_pytree_node(Keyed, lambda k: (k.items, None), lambda _, items: Keyed(*items))

    @tree_util.register_pytree_with_keys_class
    class Backwards(Bag):
        def tree_flatten_with_keys(self):
            return [(SequenceKey(i), x) for i, x in enumerate(self.items)], None

    assert tree.leaves(Backwards(1, 2)) == [1, 2]
    assert tree.leaves_with_path(Backwards(1))[0][0] == (SequenceKey(0),)
    with pytest.raises(AttributeError, match="tree_unflatten"):
        tree_util.register_pytree_node_class(int)

    @tree_util.register_static
    class Mode(str):
        pass

    assert tree.leaves([Mode("a"), 1]) == [1] and tree.structure(Mode("a")) != tree.structure(Mode("b"))


def plain_dataclass():
    @dataclasses.dataclass
    class Plain:
        x: object
        y: object
        z: object = 3

    return Plain


def test_register_dataclass():
    paths, treedef = tree.flatten_with_path(Layer(1, [2], "a"))
    assert [keystr(path) for path, _ in paths] == [".weight", ".bias[0]"]
    assert treedef != tree.structure(Layer(1, [2], "b"))
    decorate = functools.partial(tree_util.register_dataclass, data_fields=["x"], meta_fields=["y", "z"])
    assert tree.leaves(decorate(plain_dataclass())(1, 2)) == [1]
    decorate = tree_util.register_dataclass(data_fields=["x"], meta_fields=["y", "z"])
    assert tree.leaves(decorate(plain_dataclass())(1, 2)) == [1]
    dropped = tree_util.register_dataclass(plain_dataclass(), ["x", "y"], [], drop_fields=["z"])
    assert tree.map(lambda n: n, dropped(1, 2, 5)) == dropped(1, 2, 3)
    inferred = tree_util.register_dataclass(plain_dataclass(), drop_fields=["z"])
    assert tree.leaves(inferred(1, 2, 5)) == [1, 2]

    class Anything:
        def __init__(self, a, b):
            self.a, self.b = a, b

    tree_util.register_dataclass(Anything, ["a"], ["b"])
    assert tree.map(lambda n: n + 1, Anything(1, 2)).a == 2


@pytest.mark.parametrize(
    ("make", "args", "error", "words"),
    [
        (plain_dataclass, (["x", "y", "z"],), TypeError, "meta_fields=None"),
        (plain_dataclass, (None, ["x"]), TypeError, "data_fields=None"),
        (plain_dataclass, (["x"], ["z"]), ValueError, r"Missing fields: {'y'}"),
        (plain_dataclass, (["x", "q", "y"], ["z"]), ValueError, r"Unexpected fields: {'q'}"),
        (plain_dataclass, (["x", "y", "z"], [], ["z"]), ValueError, r"Unexpected fields: {'z'}"),
        (plain_dataclass, (["x", "y"], ["y", "z"]), ValueError, r"\['y'\] are in data_fields and in meta_fields"),
        (lambda: type("T", (), {}), (), TypeError, "not a dataclass"),
        (lambda: Layer, (), ValueError, "Duplicate"),
    ],
)
def test_register_dataclass_errors(make, args, error, words):
    with pytest.raises(error, match=words):
        tree_util.register_dataclass(make(), *args)


def test_partial():
    p = tree_util.Partial(pow, 2, mod=5)
    assert tree.leaves(p) == [2, 5] and isinstance(p, functools.partial)
    doubled = tree.map(lambda n: 2 * n, p)
    assert (doubled.func, doubled.args, doubled.keywords) == (pow, (4,), {"mod": 10})
    assert pickle.loads(pickle.dumps(p))(3) == p(3) == 3
    for inner in (functools.partial(pow, 2), tree_util.Partial(pow, 2)):
        nested = tree_util.Partial(inner, 3)
        assert nested() == 8 and tree.leaves(nested) == [3]
        assert tree.map(lambda n: n + 1, nested)() == 16
        assert tree.structure(nested) == tree.structure(tree_util.Partial(inner, 4))
        assert pickle.loads(pickle.dumps(nested))() == 8
    with pytest.raises(TypeError, match="callable"):
        tree_util.Partial(3)


MISMATCHES = [
    ([1, 2], [1], "rest[0]: expected a list of length 2, got a list of length 1"),
    ({"a": [1, 2]}, {"a": (1, 2)}, "rest[0]['a']: expected a list of length 2, got a tuple of length 2"),
    ({"a": 1}, {"b": 1}, "rest[0]: expected a dict with keys 'a', got a dict with keys 'b' "
                         "('a' is missing and 'b' is unexpected)"),
    ((1, None), (5, 3), "rest[0][1]: expected None, got a leaf of type int (None is a container without leaves)"),
    (Point(1, [2]), Point(1, 2), "rest[0].y: expected a list of length 1, got a leaf of type int"),
    (Point(1, 2), (1, 2), "rest[0]: expected a Point, got a tuple of length 2"),
    (Bag(1, 2), Bag(1), "rest[0]: expected a Bag with 2 children, got a Bag with 1 child"),
    (OrderedDict(a=1, b=2), OrderedDict(b=1, a=2), "(the order of the keys does not match)"),
    (defaultdict(int, a=1), defaultdict(list, a=1), "default_factory <class 'int'>"),
    ([Bag(1, label="p")], [Bag(1, label="q")], "rest[0][0]: expected a Bag with metadata 'p', got a Bag with metadata"),
    (Layer(1, 2, "p"), Layer(1, 2, "q"), "rest[0]: expected a Layer with name='p', got a Layer with name='q'"),
    (Bag(1, label=np.ones(2)), Bag(1, label=np.ones(2)), "comparing the metadata raised ValueError"),
]


@pytest.mark.parametrize(("x", "y", "words"), MISMATCHES)
def test_map_says_where_trees_differ(x, y, words):
    for call in (tree.map, tree.map_with_path):
        with pytest.raises(ValueError) as info:
            call(lambda *args: args, x, y)
        assert words in str(info.value)
        assert str(info.value).startswith("pytree structure error: different ")


def test_transpose_takes_other_metadata():
    found = tree_util.tree_transpose(tree.structure(Bag(0, label="p")), tree.structure([0, 0]), Bag([1, 2], label="q"))
    assert [(each.x if hasattr(each, "x") else tree.leaves(each)[0], each.label) for each in found] == [(1, "p"), (2, "p")]
    with pytest.raises(TypeError, match="^Mismatch$|^Mismatch\n"):
        tree_util.tree_transpose(tree.structure([0, 0]), tree.structure([0, 0, 0]), [[1, 2], [3, 4]])


def test_two_classes_of_one_name_are_told_apart():
    other = tree_util.register_static(type("Bag", (), {"__module__": "elsewhere"}))
    assert "a Bag (elsewhere.Bag)" in prefix_errors([other()], [Bag()])[0]


def test_errors_of_custom_nodes_come_through():
    class Broken:
        pass

    tree_util.register_pytree_node(Broken, lambda b: 1 / 0, lambda aux, children: Broken())
    with pytest.raises(ZeroDivisionError):
        tree.leaves(Broken())


def test_prefix_errors_and_flatten_axes():
    assert prefix_errors({"x": [(0, 1)]}, {"x": [[0, 1, 2]]}, name="in_axes") == [
        "in_axes['x'][0]: expected a list of length 3, got a tuple of length 2"
    ]
    assert len(prefix_errors([(0,), 1, (2, 3)], [5, {}, [1]])) == 2
    treedef = tree.structure(([1, 2], {"a": None, "b": 3}))
    assert flatten_axes("in_axes", treedef, None) == [None] * 3
    assert flatten_axes("in_axes", treedef, (0, None)) == [0, 0, None]
    assert flatten_axes("in_axes", treedef, ([None, 1], {"a": None, "b": 2})) == [None, 1, 2]
    with pytest.raises(ValueError) as info:
        flatten_axes("vmap in_axes", treedef, ([0, (1,)], {"a": 0, "c": 1}))
    assert str(info.value).splitlines() == [
        "vmap in_axes specification must be a tree prefix of the corresponding value; ",
        "  Mismatches:",
        "  vmap in_axes[0][1]: expected a leaf, got a tuple of length 1",
        "  vmap in_axes[1]: expected a dict with keys 'a', 'b', got a dict with keys 'a', 'c' "
        "('b' is missing and 'c' is unexpected)",
    ]


def test_equality_errors():
    found = list(equality_errors({"a": (1,), "b": [1]}, {"a": (1, 2), "b": 2}))
    assert [(keystr(path), *words) for path, *words in found] == [
        ("['a']", "a tuple of length 1", "a tuple of length 2", "the lengths do not match"),
        ("['b']", "a list of length 1", "a leaf of type int", "the types do not match"),
    ]
    ((path, one, two, _),) = equality_errors(tree.structure([1, (2,)]), tree.structure([1, 2]))
    assert (keystr(path), one, two) == ("[1]", "a tuple of length 1", "a leaf")
    many = {f"k{i:03}": 0 for i in range(100)}
    ((_, one, two, why),) = equality_errors(many, {**many, "new": 0})
    assert (one, two, why) == ("a dict with 100 keys", "a dict with 101 keys", "'new' is unexpected")


def test_endless_and_deep_trees_are_errors():
    endless = []
    endless.append(endless)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for x in (endless, deep):
        for call in (tree.leaves, tree.leaves_with_path, functools.partial(tree.map, id)):
            with pytest.raises(RecursionError, match="pytree"):
                call(x)
    assert tree.map(lambda a, b: a, [1], endless) == [1]


SIGNATURES = {
    "tree_flatten": "tree is_leaf=", "tree_leaves": "tree is_leaf=", "tree_structure": "tree is_leaf=",
    "tree_unflatten": "treedef leaves", "tree_map": "f tree *rest is_leaf=",
    "tree_reduce": "function tree initializer= is_leaf=",
    "tree_reduce_associative": "operation tree identity= is_leaf=",
    "tree_transpose": "outer_treedef inner_treedef pytree_to_transpose", "tree_all": "tree is_leaf=",
    "tree_broadcast": "prefix_tree full_tree is_leaf=",
    "tree_flatten_with_path": "tree is_leaf= is_leaf_takes_path=",
    "tree_leaves_with_path": "tree is_leaf= is_leaf_takes_path=",
    "tree_map_with_path": "f tree *rest is_leaf= is_leaf_takes_path=",
}


def test_names_and_signatures():
    for name, expected in SIGNATURES.items():
        parameters = inspect.signature(getattr(tree_util, name)).parameters.values()
        words = [("*" if p.kind == p.VAR_POSITIONAL else "") + p.name + ("=" if p.default is not p.empty else "")
                 for p in parameters]
        assert " ".join(words) == expected
        assert getattr(tree, name.removeprefix("tree_")) is getattr(tree_util, name)


@pytest.mark.parametrize("module", [core_tree, tree])
def test_doctests(module):
    assert doctest.testmod(module).failed == 0


def test_containers_that_fail_leave_no_trace():
    """jaxlib does not count its recursion back where a flatten function raises; a few hundred failures would fill it."""

    @tree_util.register_pytree_node_class
    class Failing:
        def tree_flatten(self):
            raise ValueError("no")

        @classmethod
        def tree_unflatten(cls, metadata, children):
            return cls()

    call = jax.jit(lambda x: x)
    uses = (lambda: tree.flatten([[Failing()]]), lambda: tree_util.tree_flatten_with_path([[Failing()]]),
            lambda: call([[Failing()]]), lambda: tree.map(lambda a, b: a, [(0,)], [Failing()]))
    for use in uses:
        for _ in range(400):
            with pytest.raises(ValueError, match="^no$"):
                use()
    assert tree.leaves([1, [2]]) == [1, 2]
    for transform in (jax.jit, jax.vmap, jax.checkpoint, jax.make_jaxpr, lambda f: lambda x: jax.vjp(f, x)):
        with pytest.raises(ValueError, match="^no$"):
            transform(lambda x: [Failing()])(np.ones(3))


def test_an_interrupt_of_a_flatten_function_is_not_lost():
    """C++ flattens the arguments first, Python flattens them again."""
    interrupts = iter([False, True])

    @tree_util.register_pytree_node_class
    class Slow:
        def tree_flatten(self):
            if next(interrupts, False):
                raise KeyboardInterrupt
            return (1.0,), None

        @classmethod
        def tree_unflatten(cls, metadata, children):
            return cls()

    call = jax.jit(lambda x: 2)
    tree.leaves(Slow())
    with pytest.raises(KeyboardInterrupt):
        call(Slow())
    assert call(Slow()) == 2
