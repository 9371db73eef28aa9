"""Stored tensors against those that the network needs: what is missing, misshapen, or belongs to nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .layouts import HARMLESS, STATISTICS, Sources, group_of

_SHOWN = 6


@dataclass(frozen=True)
class Inventory:
    """missing: name -> expected shape. misshapen: name -> (found, expected). harmless and unknown: extra names."""

    missing: Mapping[str, tuple[int, ...]]
    misshapen: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    harmless: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def whole(self) -> bool:
        return not (self.missing or self.misshapen)

    def report(self) -> str:
        """Every fault by part of the network, and the likely cause. Several lines."""
        kinds = (
            ("missing", {name: f"{name} {list(shape)}" for name, shape in self.missing.items()}),
            ("of another shape", {
                name: f"{name}: found {list(found)}, expected {list(wanted)}"
                for name, (found, wanted) in self.misshapen.items()
            }),
            ("not part of pi0.5", {name: name for name in self.unknown}),
        )
        lines = []
        for kind, told in kinds:
            groups: dict[str, list[str]] = {}
            for name, text in told.items():
                groups.setdefault(group_of(name), []).append(text)
            lines += [f"  {group}: {len(texts)} {kind}: {some(texts)}" for group, texts in groups.items()]
        return "\n".join([*sorted(lines), f"  likely cause: {self._cause()}"])

    def _cause(self) -> str:
        if self.missing and self.unknown:
            return "tensors under other names: written by other software, or by another version of it"
        if self.missing and {group_of(name) for name in self.missing} != {group_of(n) for n in self.misshapen}:
            return "an interrupted copy or conversion, or only a part of the policy was saved"
        if len(self.misshapen) > 2:
            return "another variant of the network than pi0.5's (gemma_2b with gemma_300m)"
        return "a tensor that was changed after the policy was saved, or a config.json of another policy"


def take_inventory(shapes: Mapping[str, tuple[int, ...]], sources: Sources) -> Inventory:
    """shapes: of the stored tensors, by name."""
    needed = {source.name: source.shape for stored in sources.values() for source in stored}
    extra = sorted(name for name in shapes if name not in needed and not STATISTICS.match(name))
    return Inventory(
        missing={name: shape for name, shape in needed.items() if name not in shapes},
        misshapen={
            name: (shapes[name], shape) for name, shape in needed.items() if name in shapes and shapes[name] != shape
        },
        harmless=tuple(name for name in extra if HARMLESS.search(name)),
        unknown=tuple(name for name in extra if not HARMLESS.search(name)),
    )


def some(texts: Iterable[str], most: int = _SHOWN) -> str:
    """The first of them, and how many more there are."""
    texts = list(texts)
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
