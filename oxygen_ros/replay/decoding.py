"""The messages of a bag as objects: by the definition that the bag holds, else by ours, never by a wrong one."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Iterator
from typing import Any

from rosbags.serde import SerdeError
from rosbags.typesys import Stores, TypesysError, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from ..embodiment.errors import InputError
from ..places import resolve
from .storage import UNNAMED, BagError, Topic

OURS = ("ActionChunk", "FrameStats", "Instruction", "LanguageToken")
_SECTION = "=" * 80 + "\n"


def ros2_types() -> Typestore:
    """The types of ROS 2 and ours, as serialised messages of this package have them."""
    types = get_typestore(Stores.ROS2_KILTED)
    for name in OURS:
        definition = resolve(f"package://oxygen_ros/msg/{name}.msg")
        types.register(get_types_from_msg(definition.read_text(), f"oxygen_ros/msg/{name}"))
    return types


class Decoding:
    """Makes decoders for topics. notes: what a reader should know of the definitions that were used."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._ours = ros2_types()

    def decoder(self, topic: Topic, expected: Collection[str]) -> Callable[[bytes], Any]:
        """Serialised message -> object with the fields of the message; it raises InputError for bytes that are none.

        Raises BagError for a topic that is of none of the expected types, or whose type has no usable definition.
        """
        kind = full_type(topic.type)
        if kind not in expected:
            found = "has no type, its channel has no schema" if kind == UNNAMED else f"is {kind}"
            raise BagError(f"{topic.name} {found}; expected {' or '.join(expected)}")
        if topic.encoding != "cdr":
            raise BagError(f"{topic.name} ({kind}) cannot be decoded: its messages are {topic.encoding}, expected cdr")
        types = self._types(topic, kind)

        def decode(data: bytes) -> Any:
            try:
                return types.deserialize_cdr(data, kind)
            # A string that is not UTF-8, or numbers that end early, raise a ValueError or struct's own.
            except (SerdeError, AssertionError, IndexError, KeyError, ValueError, struct.error) as error:
                raise InputError("message", f"{len(data)} bytes that do not deserialise ({error})", kind) from error

        return decode

    def _types(self, topic: Topic, kind: str) -> Typestore:
        undecoded = f"{topic.name} ({kind}) cannot be decoded"
        try:
            theirs = _parsed(topic, kind)
        except (TypesysError, KeyError, ValueError, AssertionError) as error:
            if topic.type_hash and topic.type_hash == self._ours.hash_rihs01(kind):
                return self._ours
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise BagError(f"{undecoded}: its definition does not parse: {reason}") from error
        if kind not in theirs:
            if topic.type_hash and topic.type_hash != self._ours.hash_rihs01(kind):
                raise BagError(f"{undecoded}: it was recorded with another definition of its type than ours "
                               f"({topic.type_hash[:15]}...), and the bag does not hold it")
            return self._ours
        ours = self._ours.fielddefs
        changed = {name for name, (_, fields) in theirs.items() if name not in ours or fields != ours[name][1]}
        if not changed:
            return self._ours
        wanted = self._completed(theirs)
        if unknown := [name for name, definition in wanted.items() if definition is None]:
            raise BagError(f"{undecoded}: its definition does not parse, or lacks that of {', '.join(unknown)}")
        types = get_typestore(Stores.EMPTY)
        types.register(wanted)
        if kind in changed:
            self.notes.append(
                f"{topic.name}: the bag has another definition of {kind} ({_differ(theirs[kind], ours[kind])}); "
                "it is decoded by that, and what it lacks has its default"
            )
        return types


    def _completed(self, definitions: dict[str, Any]) -> dict[str, Any]:
        """With ours of the types that these are made of, where the bag has none; None of those that nobody knows."""
        complete, pending = dict(definitions), list(definitions)
        while pending:
            for _, description in (complete[pending.pop()] or ((), ()))[1]:
                for name in _names(description):
                    if name not in complete:
                        known = self._ours.fielddefs.get(name)
                        complete[name] = known and known[:2]
                        pending.append(name)
        return complete


def full_type(kind: str) -> str:
    package, _, name = kind.partition("/")
    return kind if name.startswith("msg/") or not name else f"{package}/msg/{name}"


def _parsed(topic: Topic, kind: str) -> dict[str, Any]:
    """Definitions by type; empty where the bag has none."""
    if topic.schema == "ros2msg" and (topic.definition.strip() or kind == "std_msgs/msg/Empty"):
        return get_types_from_msg(topic.definition, kind)
    if topic.schema == "ros2idl" and topic.definition.strip():
        sections = topic.definition.split(_SECTION)
        found: dict[str, Any] = {}
        for section in sections:
            text = section.partition("\n")[2] if section.startswith("IDL: ") else section
            # What is included has a section of its own, and rosbags knows no such line.
            text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
            if text.strip():
                found |= get_types_from_idl(text)
        return found
    return {}


def _differ(theirs: Any, ours: Any) -> str:
    """What two definitions of a type have not in common."""
    have, want = ({name for name, _ in definition[1]} for definition in (theirs, ours))
    found = [f"without {', '.join(sorted(want - have))}"] if want - have else []
    found += [f"with {', '.join(sorted(have - want))}"] if have - want else []
    return " and ".join(found) or "with fields of other types or in another order"


def _names(description: Any) -> Iterator[str]:
    """Of the types that a field is made of."""
    kind, what = description
    if kind.name == "NAME":
        yield what
    elif kind.name in ("ARRAY", "SEQUENCE"):
        yield from _names(what[0])
