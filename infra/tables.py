"""Writes the tables of inputs and outputs into the README of each Terraform module, in the format of terraform-docs.

    python3 infra/tables.py            writes them
    python3 infra/tables.py --check    says which README is out of date, and fails if one is

`terraform-docs infra/terraform` writes the same, by .terraform-docs.yml. This script needs nothing but Python.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

MODULES = [Path(__file__).resolve().parent / name for name in ("terraform", "service")]
BEGIN, END = "<!-- BEGIN_TF_DOCS -->", "<!-- END_TF_DOCS -->"


def main(arguments: Sequence[str] | None = None) -> int:
    is_check = "--check" in (sys.argv[1:] if arguments is None else arguments)
    outdated: list[Path] = []
    for module in MODULES:
        readme = module / "README.md"
        text = readme.read_text()
        before, _, rest = text.partition(BEGIN)
        new_text = f"{before}{BEGIN}\n{tables(module)}\n{END}{rest.partition(END)[2]}"
        if new_text != text:
            outdated.append(readme)
            if not is_check:
                readme.write_text(new_text)
    for readme in outdated:
        sys.stdout.write(f"{readme}: {'out of date: run infra/tables.py' if is_check else 'written'}\n")
    return int(is_check and bool(outdated))


def tables(module: Path) -> str:
    """Requirements, inputs and outputs, each sorted by name."""
    text = "\n".join(path.read_text() for path in sorted(module.glob("*.tf")))
    versions = dict(re.findall(r'(required_version|version) += "(.*?)"', text))
    requirements = [("terraform", versions["required_version"]), ("aws", versions["version"])]
    lines = ["## Requirements", "", "| Name | Version |", "|------|---------|"]
    lines += [f"| {_anchor('requirement', name)} | {version} |" for name, version in sorted(requirements)]
    lines += ["", "## Inputs", "", "| Name | Description | Type | Default | Required |"]
    lines += ["|------|-------------|------|---------|:--------:|"]
    for name, values in _blocks("variable", text):
        default = _default(values["default"]) if "default" in values else "n/a"
        row = [_anchor("input", name), _escape(values["description"]), f"`{values['type']}`", default]
        lines.append(f"| {' | '.join(row)} | {'no' if 'default' in values else 'yes'} |")
    lines += ["", "## Outputs", "", "| Name | Description |", "|------|-------------|"]
    lines += [
        f"| {_anchor('output', name)} | {_escape(values['description'])} |" for name, values in _blocks("output", text)
    ]
    return "\n".join(lines)


def _blocks(kind: str, text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The blocks of a kind, by their names, with those of their arguments that take one line."""
    blocks = re.findall(rf'^{kind} "(\w+)" {{\n(.*?)^}}', text, re.DOTALL | re.MULTILINE)
    for name, body in sorted(blocks):
        values = dict(re.findall(r"^  (description|type|default) += (.*)$", body, re.MULTILINE))
        values["description"] = json.loads(values["description"])
        yield name, values


def _default(text: str) -> str:
    """A default as terraform-docs shows it: JSON, of which a list with members takes a line for each."""
    value = json.loads(text)
    return (
        f"<pre>{json.dumps(value, indent=2).replace(chr(10), '<br/>')}</pre>"
        if isinstance(value, list) and value
        else f"`{text}`"
    )


def _anchor(kind: str, name: str) -> str:
    escaped = name.replace("_", "\\_")
    return f'<a name="{kind}_{name}"></a> [{escaped}](#{kind}\\_{escaped})'


def _escape(text: str) -> str:
    """Escape underscores and bars outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("_", "\\_").replace("|", "\\|") for part in parts)


if __name__ == "__main__":
    sys.exit(main())
