"""Our `dataclass` makes what that of the standard library makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any, Generic, TypeVar

import pytest
from pydantic import TypeAdapter, ValidationError

from kindlm.dataclass import dataclass, replace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    """A value without anything unusual."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Named(Point, Generic[T]):
    """A value that inherits fields, and has one of each kind of its own."""

    name: str = field(default="n", kw_only=True)
    unseen: object = field(default=None, compare=False, repr=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """A value without fields."""


@dataclass(frozen=True, slots=True)
class Own:
    """A value that says itself what is equal."""

    key: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.key.casefold() == other.key.casefold()

    def __hash__(self) -> int:
        return hash(self.key.casefold())

    def __repr__(self) -> str:
        return f"<{self.key}>"


@dataclasses.dataclass(frozen=True, slots=True)
class StandardPoint:
    """`Point`, made by the standard library."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)


@pytest.mark.parametrize(
    ("args", "keywords"),
    [((1,), {}), ((1, 3), {}), ((), {"x": 1, "tags": ["a"]}), ((1, 2, ["b"]), {})],
)
def test_a_value_is_made_shown_and_compared_as_by_the_standard_library(
    args: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    ours, theirs = Point(*args, **keywords), StandardPoint(*args, **keywords)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert repr(ours) == repr(theirs).replace("StandardPoint", "Point")
    assert ours == Point(*args, **keywords)
    assert (ours == replace(ours, x=9)) is False
    assert ours != theirs
    assert not hasattr(ours, "__dict__")


@pytest.mark.parametrize("made", [Point, StandardPoint])
@pytest.mark.parametrize(("args", "keywords"), [((), {}), ((1, 2, [], 4), {}), ((1,), {"z": 1})])
def test_wrong_arguments_are_refused(
    made: Callable[..., object], args: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        made(*args, **keywords)


def test_it_is_called_with_the_same_parameters() -> None:
    ours, theirs = (inspect.signature(made) for made in (Point, StandardPoint))
    assert [*ours.parameters] == [*theirs.parameters]
    for mine, other in zip(ours.parameters.values(), theirs.parameters.values(), strict=True):
        assert (mine.kind, mine.annotation) == (other.kind, other.annotation)


def test_each_value_has_its_own_default() -> None:
    Point(1).tags.append("a")
    assert Point(1).tags == []


def test_fields_of_all_kinds_are_set() -> None:
    named = Named[int](1, unseen="u", name="long")
    assert (named.x, named.y, named.name, named.unseen, named.size) == (1, 2, "long", "u", 4)
    assert repr(named) == "Named(x=1, y=2, tags=[], name='long', size=4)"
    assert named == replace(named, unseen="other")
    assert Named.__match_args__ == ("x", "y", "tags", "unseen")
    with pytest.raises(TypeError):
        Named(1, 2, [], None, "positional")  # type: ignore[misc]


def test_a_value_is_replaced_in_some_fields() -> None:
    named = Named[int](1, unseen="u", name="long")
    assert replace(named, x=3, name="n") == Named(3, unseen="u", name="n")
    assert replace(named, name="n").size == 1
    for wrong in ({"z": 1}, {"size": 2}):
        with pytest.raises(TypeError):
            replace(named, **wrong)  # type: ignore[arg-type]


def test_a_value_is_hashed_by_what_is_compared() -> None:
    one, other = Named(1, tags=(), unseen="a"), Named(1, tags=(), unseen="b")  # type: ignore[arg-type]
    assert hash(one) == hash(other)
    assert len({Empty(), Empty()}) == 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))


def test_what_a_class_defines_itself_stays() -> None:
    assert {Own("A"), Own("a")} == {Own("a")}
    assert repr(Own("A")) == "<A>"


@pytest.mark.parametrize("value", [Point(1, 2, ["a"]), Named(1, name="n"), Empty()])
def test_a_value_is_copied_and_pickled(value: Any) -> None:
    for copied in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert copied == value
        assert type(copied) is type(value)


def test_a_value_cannot_be_changed() -> None:
    point: Any = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert point.x == 1


def test_a_value_that_holds_itself_is_shown() -> None:
    point = Point(1, 2, [])
    point.tags.append(point)  # type: ignore[arg-type]
    assert repr(point) == "Point(x=1, y=2, tags=[...])"


def test_pydantic_reads_it() -> None:
    adapter = TypeAdapter(Named[int])
    assert adapter.validate_python({"x": 1, "name": "abc"}) == Named(1, name="abc")
    with pytest.raises(ValidationError):
        adapter.validate_python({"x": "no number"})


def test_other_dataclasses_are_those_of_the_standard_library() -> None:
    @dataclass(slots=True, kw_only=True)
    class Changing:
        """A value that can be changed."""

        x: int

    changing = Changing(x=1)
    changing.x = 2
    assert changing == Changing(x=2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(changing)


def test_dataclasses_of_the_standard_library_inherit_from_it_as_from_their_own() -> None:
    @dataclasses.dataclass(frozen=True)
    class Labelled(Point):
        label: str = "a"

    assert Labelled(1, label="b") == Labelled(1, label="b")
    with pytest.raises(FrozenInstanceError):
        Labelled(1).label = "c"  # type: ignore[misc]
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):

        @dataclasses.dataclass
        class Changing(Point):  # type: ignore[misc]
            pass


def test_it_inherits_from_dataclasses_of_the_standard_library() -> None:
    @dataclass(frozen=True, slots=True)
    class Labelled(StandardPoint):
        label: str = "a"

    @dataclasses.dataclass
    class Changing:
        x: int

    assert Labelled(1, label="b") == replace(Labelled(1), label="b")
    assert copy.copy(Labelled(1)) == Labelled(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'colour'"):
        Labelled(1).colour = "red"  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="cannot inherit frozen dataclass from a non-frozen one"):

        @dataclass(frozen=True, slots=True)
        class Fixed(Changing):  # type: ignore[misc]
            pass


def test_it_says_of_itself_what_the_standard_library_says() -> None:
    ours, theirs = (made.__dataclass_params__ for made in (Point, StandardPoint))  # type: ignore[attr-defined]
    assert repr(ours) == repr(theirs)
    ours, theirs = (made.__init__ for made in (Point, StandardPoint))
    assert ours.__module__ == theirs.__module__
    assert inspect.signature(ours).return_annotation is None


@pytest.mark.parametrize("arguments", [{}, {"x": 1, "z": 2}])
def test_the_message_about_wrong_arguments_names_the_class(arguments: dict[str, int]) -> None:
    messages = []
    for made in (Point, StandardPoint):
        with pytest.raises(TypeError) as raised:
            made(**arguments)
        messages.append(str(raised.value).replace("StandardPoint", "Point"))
    assert messages[0] == messages[1]
    assert messages[0].startswith("Point.__init__()")


def test_names_of_fields_mean_nothing_else() -> None:
    @dataclass(frozen=True, slots=True)
    class Odd:
        self: int
        _self: int
        _missing: int
        __hidden: int
        value: list[int] = field(default_factory=list)

        @property
        def hidden(self) -> int:
            return self.__hidden

    odd = Odd(1, 2, 3, 4)
    assert (odd.self, odd._self, odd._missing, odd.hidden, odd.value) == (1, 2, 3, 4, [])
    assert replace(odd, value=[5]) == Odd(1, 2, 3, 4, [5])


def test_a_field_may_be_left_to_post_init() -> None:
    @dataclass(frozen=True, slots=True)
    class Sized:
        name: str
        size: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "size", len(self.name))

    assert Sized("abc").size == 3


def test_a_value_of_one_field_is_compared_as_one_of_several() -> None:
    @dataclass(frozen=True, slots=True)
    class Measured:
        seconds: float

    unknown = Measured(math.nan)
    assert unknown == copy.copy(unknown)
    assert Measured(math.nan) != Measured(float("nan"))
    assert hash(Measured(1.5)) == hash((1.5,))


def test_a_class_decides_that_it_is_not_hashed() -> None:
    @dataclass(frozen=True, slots=True)
    class Unhashable:
        key: str
        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(TypeError, match="unhashable"):
        hash(Unhashable("a"))
