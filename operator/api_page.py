#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""api_page.py [--check]: writes the tables of operator/reference/fields.md from manifests/crd.

`make api-page` calls it. --check only compares the tables and reports fields without a description
(tests/lint/docs.sh). Needs python3-yaml.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "operator/reference/fields.md"
KINDS = {  # kind: its definition
    "HorovodJob": ROOT / "manifests/crd/horovodjobs.ringmaster.dev.yaml",
    "MPIJob": ROOT / "manifests/crd/mpijob/mpijobs.kubeflow.org.yaml",
}
BEGIN = "<!-- api: made by `make api-page` from manifests/crd; tests/lint/docs.sh compares -->"
END = "<!-- end of api -->"
SECTIONS = ("spec", "status")
PARTS = ("properties", "items", "additionalProperties")


def shape(node: dict) -> str:
    """The type as the table shows it."""
    if node.get("x-kubernetes-int-or-string"):
        # a pattern with unit suffixes is a quantity's
        return "quantity" if "KMGTPE" in node.get("pattern", "") else "integer or string"
    kind = node.get("type", "any")
    if kind == "array":
        return "list of " + plural(shape(node["items"]))
    if kind == "object" and isinstance(node.get("additionalProperties"), dict):
        return "map of " + plural(shape(node["additionalProperties"]))
    return "time" if node.get("format") == "date-time" else kind


def plural(word: str) -> str:
    return {"quantity": "quantities", "integer or string": "integers or strings"}.get(word, word + "s")


def is_fixed(node: dict, name: str, parent: dict) -> bool:
    """Whether a validation rule forbids changes of the field."""
    if any(r["rule"] == "self == oldSelf" for r in node.get("x-kubernetes-validations", [])):
        return True
    same = rf"has\(self\.{name}\) == has\(oldSelf\.{name}\)"
    return any(re.search(same, r["rule"]) for r in parent.get("x-kubernetes-validations", []))


def limits(node: dict) -> list[str]:
    out = []
    if "enum" in node:
        out.append(", ".join(f"`{v}`" for v in node["enum"]))
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and high is not None:
        out.append(f"{low} to {high}")
    elif low is not None or high is not None:
        out.append(f"at least {low}" if high is None else f"at most {high}")
    for key, word in (("maxLength", "characters"), ("maxItems", "entries")):
        if key in node:
            out.append(f"at most {node[key]} {word}")
    if node.get("minItems") or node.get("minLength"):
        out.append("not empty")
    if "items" in node:
        inner = [t for t in limits(node["items"]) if t]
        out += [f"each {', '.join(inner)}"] if inner else []
    return out


def allowed(name: str, node: dict, parent: dict) -> str:
    words = limits(node)
    if name in parent.get("required", []):
        words.insert(0, "required")
    if is_fixed(node, name, parent):
        words.append("fixed")
    return "; ".join(words)


def default(node: dict) -> str:
    if "default" not in node or node["default"] == {}:
        return ""
    return f"`{node['default'] if isinstance(node['default'], str) else json.dumps(node['default'])}`"


def bare(node):
    """The schema without rules. Objects that differ only in rules are described once."""
    if isinstance(node, dict):
        return {k: bare(v) for k, v in node.items() if k != "x-kubernetes-validations"}
    return [bare(x) for x in node] if isinstance(node, list) else node


class Table:
    def __init__(self, kind: str):
        self.kind = kind
        self.rows: list[str] = []
        self.nameless: list[str] = []
        self.described: dict[str, str] = {}  # schema of an object with fields: the path where they are

    def add(self, path: str, name: str, node: dict, parent: dict) -> None:
        text = " ".join(node.get("description", "").split()).replace("|", "\\|")
        if not text:
            self.nameless.append(f"{self.kind}: {path}")
        fields = json.dumps(bare({k: node[k] for k in PARTS if k in node}), sort_keys=True)
        if "properties" in node and fields in self.described:
            text += f" Its fields are those of `{self.described[fields]}`."
        cells = (f"`{path}`", shape(node), default(node), allowed(name, node, parent), text)
        self.rows.append("| " + " | ".join(cells) + " |")
        if "properties" in node and fields not in self.described:
            self.described[fields] = path
            self.below(path, node)
        for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
            inner = node.get(key)
            if isinstance(inner, dict) and "properties" in inner:
                self.below(path + mark, inner)

    def below(self, path: str, node: dict) -> None:
        for name, child in node.get("properties", {}).items():
            self.add(f"{path}.{name}" if path else name, name, child, node)


def page() -> tuple[str, list[str]]:
    out, nameless = [], []
    for kind, file in KINDS.items():
        version = yaml.safe_load(file.read_text())["spec"]["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        for section in SECTIONS:
            table = Table(kind)
            table.below("", schema["properties"][section])
            out += ["", f"## {kind}, `{section}`", "", "| field | type | default | allowed | meaning |"]
            out += ["|---|---|---|---|---|", *table.rows]
            nameless += table.nameless
    return "\n".join([BEGIN, *out, "", END]), nameless


def main() -> int:
    tables, nameless = page()
    text = PAGE.read_text()
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        print(f"{PAGE.relative_to(ROOT)}: no lines '{BEGIN}' and '{END}'")
        return 1
    new = text[:begin] + tables + text[end + len(END) :]
    for field in nameless:
        print(f"manifests/crd: {field} has no description")
    if sys.argv[1:] == ["--check"]:
        if new != text:
            print(f"{PAGE.relative_to(ROOT)}: differs from manifests/crd; run make api-page")
        return 1 if nameless or new != text else 0
    PAGE.write_text(new)
    return 1 if nameless else 0


if __name__ == "__main__":
    sys.exit(main())
