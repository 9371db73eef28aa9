"""Writes the README's table of parameters from their one declaration; --check only says whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from oxygen_ros import settings

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- parameters: written by scripts/write_parameter_table.py -->\n", "<!-- end of parameters -->"


def rows() -> list[str]:
    lines = ["| parameter | default | meaning |", "|---|---|---|"]
    for declaration in settings.declarations(dict.fromkeys(("cameras", "grippers", "joints", "actions"), ["<name>"])):
        bounds = declaration.bounds
        notes = declaration.description + (f" ({'; '.join(bounds)})" if bounds else "")
        notes += " *Live.*" if declaration.live else ""
        lines.append(f"| `{declaration.name}` | `{_in_yaml(declaration.default)}` | {notes.replace('<', '&lt;')} |")
    return lines


def _in_yaml(value: object) -> str:
    """As it is written in a parameter file, on one line."""
    value = list(value) if isinstance(value, tuple) else value
    style = '"' if "\n" in str(value) else None
    return yaml.safe_dump(value, default_flow_style=True, default_style=style).removesuffix("...\n").rstrip("\n")


def with_table(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n".join(rows()) + "\n" + END + after


if __name__ == "__main__":
    text = README.read_text()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if with_table(text) == text else "README.md: its table of parameters is out of date")
    README.write_text(with_table(text))
