#!/usr/bin/env python3
"""Writes C++ from the schemas: plain structs, tables of their fields, and their wire form.

usage: generate.py OUT_DIR SCHEMA.capnp...     (each schema after those that it imports)

For each schema NAME.capnp it writes precis/schema/NAME.h, which needs no Cap'n Proto header, and
the pair wire_NAME.h, wire_NAME.cc. rules.capnp explains the annotations. `capnp compile` checks the
same files, so this parser does not check their syntax. It expects one declaration a line, and
comments after the declaration that they explain.
"""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

NUMBERS = {
    "UInt8": "std::uint8_t",
    "UInt32": "std::uint32_t",
    "UInt64": "std::uint64_t",
    "Float64": "double",
    "Bool": "bool",
}


def snake(name: str) -> str:
    return re.sub(r"([A-Z])", lambda m: "_" + m[1].lower(), name).lstrip("_")


def capital(name: str) -> str:
    return name[0].upper() + name[1:]


@dataclass
class Field:
    name: str  # as in the schema
    type: str
    default: str
    rules: dict[str, str]  # annotation -> its argument
    doc: list[str] = field(default_factory=list)

    @property
    def cxx(self) -> str:
        return snake(self.name)


@dataclass
class Node:
    """A struct or an enum."""

    kind: str
    name: str
    rules: dict[str, str]
    namespace: str
    doc: list[str] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)
    union: list[Field] = field(default_factory=list)
    union_name: str = ""  # of a group; empty for the struct's own union
    enums: list[Node] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of an enum

    @property
    def cxx(self) -> str:
        return ("precis" if "byHand" in self.rules else self.namespace) + "::" + self.name


def rules_of(text: str) -> dict[str, str]:
    found = re.findall(r'\$Is\.(\w+)(?:\(("?)(.*?)\2\))?(?=[\s;{]|$)', text)
    return {name: argument for name, _, argument in found}


def parse(path: Path) -> list[Node]:
    """The file's structs and enums, in order."""
    text = path.read_text()
    namespace = re.search(r'\$Is\.cxxNamespace\("(.*?)"\)', text)[1]
    top: list[Node] = []
    open_nodes: list[Node] = []
    in_union = False
    last: Field | Node | None = None
    for line in text.splitlines():
        code, _, comment = (part.strip() for part in line.partition("#"))
        if opened := re.match(r"(struct|enum) (\w+)(.*?)\{(\})?$", code):
            last = Node(opened[1], opened[2], rules_of(opened[3]), namespace)
            (open_nodes[-1].enums if open_nodes else top).append(last)
            if not opened[4]:
                open_nodes.append(last)
        elif opened := re.match(r"(?:(\w+) :)?union \{", code):
            open_nodes[-1].union_name = opened[1] or ""
            in_union = True
        elif code == "}":
            if in_union:
                in_union = False
            else:
                open_nodes.pop()
            last = None
        elif found := re.match(r"(\w+) @\d+ :([\w.()]+)(?: = (\w+))?(.*);$", code):
            kind = found[2].replace("Types.", "")
            last = Field(found[1], kind, found[3] or "", rules_of(found[4]))
            (open_nodes[-1].union if in_union else open_nodes[-1].fields).append(last)
        elif found := re.match(r"(\w+) @\d+;", code):
            open_nodes[-1].names.append(found[1])
        if comment and last is not None and not comment.startswith("----"):
            last.doc.append(comment)
    return top


class Schema:
    """All parsed files. Finds the types of their fields."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}

    def add(self, nodes: list[Node]) -> None:
        for node in nodes:
            self.nodes[node.name] = node

    def find(self, owner: Node, kind: str) -> Node | None:
        nested = next((each for each in owner.enums if each.name == kind), None)
        return nested or self.nodes.get(kind)

    def cxx_type(self, owner: Node, f: Field) -> str:
        """The C++ type of the field's value, without std::optional."""
        if f.type in NUMBERS:
            return NUMBERS[f.type]
        if f.type == "Text":
            return "std::string"
        if f.type == "Data":
            if "digest" in f.rules:
                return "Digest"
            if "segmentId" in f.rules:
                return "SegmentId"
            return f"std::vector<{f.rules['array']}>" if "array" in f.rules else "std::string"
        if item := re.match(r"List\((\w+)\)", f.type):
            return f"std::vector<{self.nodes[item[1]].cxx}>"
        node = self.find(owner, f.type)
        return node.name if node in owner.enums else node.cxx

    def initial(self, owner: Node, f: Field) -> str:
        if "optional" in f.rules:
            return "{}"
        if f.type in NUMBERS:
            return " = " + (f.default or ("false" if f.type == "Bool" else "0"))
        node = self.find(owner, f.type)
        if node and node.kind == "enum" and f.default:
            return f" = {self.cxx_type(owner, f)}::k{capital(f.default)}"
        return "{}"


def comment(lines: list[str], indent: str = "") -> str:
    """The lines as a C++ comment, with C++ names of fields: head_begin for headBegin."""
    words = " ".join(line for line in lines if not line.startswith("->"))
    words = re.sub(r"\b(?!k[A-Z])[a-z]+(?:[A-Z][a-z]+)+\b", lambda m: snake(m[0]), words)
    if not words:
        return ""
    lead = indent + "// "
    return "\n".join(textwrap.wrap(words, 100, initial_indent=lead, subsequent_indent=lead)) + "\n"


# ---- plain structs ------------------------------------------------------------------------------
def struct_text(schema: Schema, node: Node) -> str:
    out = comment(node.doc) + f"struct {node.name} {{\n"
    for enum in node.enums:
        names = ", ".join("k" + capital(name) for name in enum.names)
        out += comment(enum.doc, "  ")
        out += f"  enum class {enum.name} : std::uint8_t {{ {names} }};\n"
    for f in node.fields:
        kind = schema.cxx_type(node, f)
        if "optional" in f.rules:
            kind = f"std::optional<{kind}>"
        out += comment(f.doc, "  ") + f"  {kind} {f.cxx}{schema.initial(node, f)};\n"
    return out + f"  bool operator==(const {node.name}&) const = default;\n}};\n"


def fields_text(node: Node) -> str:
    """The table of a struct's fields (fields.h)."""
    rows = "".join(f'    Field{{"{f.cxx}", &{node.cxx}::{f.cxx}}},\n' for f in node.fields)
    rows = rows.removesuffix(",\n")
    return (
        f"template <>\nstruct Fields<{node.cxx}> {{\n"
        f"  static constexpr auto all = std::make_tuple(\n{rows});\n}};\n"
    )


def union_text(node: Node) -> str:
    kinds = ", ".join(f.type for f in node.union)
    out = f"using {node.name}Body = std::variant<{kinds}>;\n"
    if not any("call" in f.rules for f in node.union):
        return out
    rows = "".join(
        f'    {{"{f.type}", "{f.rules["call"]}", {str("administrative" in f.rules).lower()}, '
        f"Role::k{capital(f.rules.get('role', 'writer'))}}},\n"
        for f in node.union
    )
    return out + f"inline constexpr {node.name}Kind k{node.name}Kinds[] = {{\n{rows}}};\n"


def header_text(schema: Schema, path: Path, nodes: list[Node], imports: list[str]) -> str:
    namespace = nodes[0].namespace
    own = [n for n in nodes if n.kind == "struct" and "byHand" not in n.rules]
    by_hand = {n.rules["byHand"] for n in nodes if "byHand" in n.rules} - {"messages.h"}
    includes = sorted({f"precis/{name}" for name in by_hand} | set(imports) | {"precis/fields.h"})
    out = f"// Generated from schema/{path.name} by schema/generate.py.\n#pragma once\n\n"
    for name in ("array", "cstdint", "optional", "string", "tuple", "variant", "vector"):
        out += f"#include <{name}>\n"
    out += "\n" + "".join(f'#include "{name}"\n' for name in includes)
    out += f"\nnamespace {namespace} {{\n\n"
    out += "\n".join(
        union_text(n) if n.union else struct_text(schema, n) for n in in_order(schema, own)
    )
    out += f"\n}}  // namespace {namespace}\n\nnamespace precis {{\n\n"
    tables = [n for n in nodes if n.kind == "struct" and not n.union]
    out += "\n".join(fields_text(n) for n in tables if n.fields)
    return out + "\n}  // namespace precis\n"


def in_order(schema: Schema, nodes: list[Node]) -> list[Node]:
    """The nodes, each after the structs that it contains."""
    done: list[Node] = []

    def visit(node: Node) -> None:
        if node in done:
            return
        for f in node.fields + node.union:
            item = re.sub(r"List\((\w+)\)", r"\1", f.type)
            if schema.nodes.get(item) in nodes:
                visit(schema.nodes[item])
        done.append(node)

    for node in nodes:
        visit(node)
    return done


# ---- wire form ----------------------------------------------------------------------------------
def limit(f: Field) -> str:
    return "limits::" + f.rules["atMost"]


def write_text(schema: Schema, node: Node, f: Field) -> str:
    setter, value, optional = f"out.set{capital(f.name)}", f"in.{f.cxx}", "optional" in f.rules
    guard = f"  if ({value}) " if optional else "  "
    inner = f"*{value}" if optional else value
    if f.type == "Text":
        if "forPeople" in f.rules:
            inner = f"clean_text({inner}, {limit(f)})"
        return f"{guard}{setter}(as_text({inner}));\n"
    if f.type == "Data":
        return f"{guard}{setter}(as_data({inner}));\n"
    if f.type in NUMBERS:
        return f"{guard}{setter}({inner});\n"
    if f.type.startswith("List("):
        size = f"static_cast<unsigned>({value}.size())"
        return f"  write_list(out.init{capital(f.name)}({size}), {value});\n"
    kind = schema.find(node, f.type)
    if kind.kind == "enum":
        wire = f"{node.name}::{f.type}" if kind in node.enums else f.type
        return f"  {setter}(static_cast<{wire}>({value}));\n"
    return f"{guard}write(out.init{capital(f.name)}(), {inner});\n"


def read_text(schema: Schema, node: Node, f: Field) -> str:
    getter, value, name = f"in.get{capital(f.name)}()", f"out.{f.cxx}", f'"{f.cxx}"'
    optional = "optional" in f.rules
    if f.type in NUMBERS:
        if optional:
            text = f"  if ({getter} != {f.default}) {value} = {getter};\n"
            if "atMost" in f.rules:
                text += f"  PRECIS_TRY(check_max({name}, {value}.value_or(0), {limit(f)}));\n"
            return text
        text = f"  {value} = {getter};\n"
        if "atLeast" in f.rules:
            bounds = f"{f.rules['atLeast']}, {limit(f)}"
            return text + f"  PRECIS_TRY(check_range({name}, {value}, {bounds}));\n"
        if "atMost" in f.rules:
            text += f"  PRECIS_TRY(check_max({name}, {value}, {limit(f)}));\n"
        return text
    to = f"{value}.emplace()" if optional else value
    has = f"  if (in.has{capital(f.name)}()) " if optional else "  "
    if f.type == "Text":
        if "atMost" in f.rules:
            return f"{has}PRECIS_TRY(read_text({name}, {getter}, {limit(f)}, {to}));\n"
        return f"{has}PRECIS_TRY(read_name({name}, {getter}, {to}));\n"
    if f.type == "Data":
        if "digest" in f.rules:
            return f"{has}PRECIS_TRY(read_digest({name}, {getter}, {to}));\n"
        if "segmentId" in f.rules:
            return f"{has}PRECIS_TRY(read_segment_id({name}, {getter}, {to}));\n"
        reader = "read_array" if "array" in f.rules else "read_bytes"
        return f"{has}PRECIS_TRY({reader}({name}, {getter}, {limit(f)}, {to}));\n"
    if f.type.startswith("List("):
        return f"  PRECIS_TRY(read_list({name}, {getter}, {limit(f)}, {value}));\n"
    kind = schema.find(node, f.type)
    if kind.kind == "enum":
        last = f"static_cast<decltype({value})>({len(kind.names) - 1})"
        return f"  PRECIS_TRY(read_enum({name}, {getter}, {last}, {value}));\n"
    return f"{has}PRECIS_TRY(read({getter}, {to}).with_context({name}));\n"


def codec_text(schema: Schema, node: Node) -> str:
    body = "".join(write_text(schema, node, f) for f in node.fields)
    named = " out" if body else "", " in" if body else ""
    out = f"void write({node.name}::Builder{named[0]}, const {node.cxx}&{named[1]}) {{\n{body}}}\n"
    body = "".join(read_text(schema, node, f) for f in node.fields)
    named = " in" if body else "", " out" if body else ""
    out += f"Status read({node.name}::Reader{named[0]}, {node.cxx}&{named[1]}) {{\n{body}"
    out += f"  return {'check(out)' if 'checked' in node.rules else 'Status()'};\n}}\n"
    return out


def union_codec_text(node: Node) -> str:
    wire = node.name + ("::" + capital(node.union_name) if node.union_name else "")
    body = f"{node.namespace}::{node.name}Body"
    out = f"namespace {{\nstruct {node.name}Writer {{\n  {wire}::Builder out;\n"
    for f in node.union:
        call = f"write(out.init{capital(f.name)}(), in);"
        out += f"  void operator()(const {node.namespace}::{f.type}& in) {{ {call} }}\n"
    out += "};\n}  // namespace\n"
    out += f"void write_body({wire}::Builder out, const {body}& in) {{\n"
    out += f"  std::visit({node.name}Writer{{out}}, in);\n}}\n"
    out += f"Status read_body({wire}::Reader in, {body}& out) {{\n  switch (in.which()) {{\n"
    for f in node.union:
        kind = f"{node.namespace}::{f.type}"
        out += f"    case {wire}::{snake(f.name).upper()}:\n"
        out += f"      return read(in.get{capital(f.name)}(), out.emplace<{kind}>());\n"
    return out + "  }\n  return unknown_kind(static_cast<unsigned>(in.which()));\n}\n"


def wire_texts(schema: Schema, path: Path, nodes: list[Node]) -> tuple[str, str]:
    stem = path.stem
    made = f"// Generated from schema/{path.name} by schema/generate.py.\n"
    header = made + f'#pragma once\n\n#include "{stem}.capnp.h"\n'
    header += f'#include "precis/schema/{stem}.h"\n'
    header += '#include "precis/status.h"\n\nnamespace precis::wire {\n\n'
    source = made + f'#include "wire_{stem}.h"\n\n#include "field_checks.h"\n'
    source += "".join(f'#include "wire_{name}.h"\n' for name in imports_of(path))
    source += '#include "wire_fields.h"\n\nnamespace precis::wire {\n\n'
    for node in nodes:
        if node.kind != "struct":
            continue
        if node.union and "byHand" not in node.rules:
            wire = node.name + ("::" + capital(node.union_name) if node.union_name else "")
            body = f"{node.namespace}::{node.name}Body"
            header += f"void write_body({wire}::Builder out, const {body}& in);\n"
            header += f"Status read_body({wire}::Reader in, {body}& out);\n"
            source += union_codec_text(node) + "\n"
        elif not node.union:
            header += f"void write({node.name}::Builder out, const {node.cxx}& in);\n"
            header += f"Status read({node.name}::Reader in, {node.cxx}& out);\n"
            source += codec_text(schema, node) + "\n"
    return header + "\n}  // namespace precis::wire\n", source + "}  // namespace precis::wire\n"


def imports_of(path: Path) -> list[str]:
    names = re.findall(r'import "(\w+)\.capnp"', path.read_text())
    return [name for name in names if name != "rules"]


def main(out_dir: str, *paths: str) -> None:
    schema = Schema()
    out = Path(out_dir)
    (out / "precis/schema").mkdir(parents=True, exist_ok=True)
    for path in map(Path, paths):
        nodes = parse(path)
        schema.add(nodes)
        imports = [f"precis/schema/{name}.h" for name in imports_of(path)]
        (out / f"precis/schema/{path.stem}.h").write_text(header_text(schema, path, nodes, imports))
        header, source = wire_texts(schema, path, nodes)
        (out / f"wire_{path.stem}.h").write_text(header)
        (out / f"wire_{path.stem}.cc").write_text(source)


if __name__ == "__main__":
    main(*sys.argv[1:])
