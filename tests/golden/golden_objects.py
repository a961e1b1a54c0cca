# SPDX-License-Identifier: Apache-2.0
"""The object sets of tests/golden/objects.txt as dicts (the format: tests/unit/golden.h)."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path

GONE = object()
FILE = Path(__file__).with_name("objects.txt")


def item(items: list, name: str) -> int:
    """The index of the item that goes by the name, or by its position; len(items) if there is none."""
    if name.isdigit():
        return int(name)
    return next((i for i, o in enumerate(items) if name in (o.get("name"), o.get("type"))), len(items))


def find(root: dict, path: str) -> dict:
    """The object at a path such as Pod.spec.containers[train].env[A]; it is created when absent."""
    o = root
    for key, name in re.findall(r"\.([^.\[]+)(?:\[([^\]]*)\])?", path):
        if not name:
            o = o.setdefault(key, {})
            continue
        items = o.setdefault(key, [])
        i = item(items, name)
        if i == len(items):
            items.append({} if name.isdigit() else {"name": name})
        o = items[i]
    return o


def members(text: str) -> Iterator[tuple[str, object]]:
    """(key, value) of "key=value key=value -key"; a value is bare or JSON, GONE where the key is removed."""
    while text:
        key, _, rest = text.partition(" ")
        if key.startswith("-"):
            yield key[1:], GONE
        else:
            key, _, rest = text.partition("=")
            if rest[0] in '"[{':
                value, end = json.JSONDecoder().raw_decode(rest)
                yield key, value
                rest = rest[end + 1 :]
            else:
                word, _, rest = rest.partition(" ")
                yield (
                    key,
                    json.loads(word) if re.fullmatch(r"-?\d+(\.\d+)?|true|false|null", word) else word,
                )
        text = rest


def change(root: dict, line: str) -> None:
    path, _, rest = line.partition(" ")
    if path.startswith("-"):
        list_path, name = re.fullmatch(r"-(.*)\[([^\]]*)\]", path).groups()
        parent, key = list_path.rsplit(".", 1)
        items = find(root, parent)[key]
        del items[item(items, name)]
    elif rest.startswith("order "):
        parent, key = path.rsplit(".", 1)
        items = find(root, parent)[key]
        find(root, parent)[key] = [items[item(items, name)] for name in rest.split()[1:]]
    else:
        o = find(root, path)
        for key, value in members(rest):
            if value is GONE:
                del o[key]
            else:
                o[key] = value


def cases() -> Iterator[tuple[str, list[dict]]]:
    """(name of the case, its objects) of the whole file."""
    first: dict[str, dict[str, dict]] = {}  # of each word that names begin with; by kind
    for case in re.split(r"(?m)^== ", FILE.read_text(encoding="utf-8"))[1:]:
        name = case.partition("\n")[0]
        word = name.partition("-")[0]
        like = next(iter(first.values()), {}) | first.get(word, {})
        objects = []
        for line in case.split("\n--\n", 1)[1].splitlines():
            if re.fullmatch(r"[A-Z]\w+ [^ =]+(, [A-Z]\w+ [^ =]+)*", line):
                objects += [copy.deepcopy(like.get(one.split()[0], {})) for one in line.split(", ")]
            elif line:
                change(objects[-1], line)
        first.setdefault(word, {o["kind"]: copy.deepcopy(o) for o in reversed(objects)})
        yield name, objects
