#!/usr/bin/env python3
"""Writes tutti_c.f90, the C interface as Fortran sees it, from include/tutti/tutti.h.

from_header.py HEADER MODULE           writes MODULE
from_header.py HEADER MODULE --check   exit status 1 if MODULE is not what would be written, or if
                                       something that the header declares is not understood
"""
import pathlib
import re
import sys

NUMBERS = {"int32_t": "integer(c_int32_t)", "int64_t": "integer(c_int64_t)", "int": "integer(c_int)",
           "uint64_t": "integer(c_int64_t)", "size_t": "integer(c_size_t)", "double": "real(c_double)",
           "float": "real(c_float)", "char": "character(kind=c_char)"}
BYTES = {"int32_t": 4, "int64_t": 8, "uint64_t": 8, "size_t": 8, "double": 8, "char": 1}
ZERO = {"integer(c_int32_t)": "0_c_int32_t", "integer(c_int64_t)": "0_c_int64_t",
        "integer(c_size_t)": "0_c_size_t", "real(c_double)": "0.0_c_double",
        "character(kind=c_char)": "c_null_char"}
# Pointers that C may not give as NULL, or that are results; all others may be absent.
NEEDED = {"sum", "other", "values", "left", "right", "exchange", "context", "communicator", "part",
          "segment", "operation"}


class Header:
    def __init__(self, text):
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        text = text[text.index('extern "C"'):]
        self.alias, self.structs, self.opaque, self.functions, self.callbacks = {}, {}, [], [], set()
        self.constants = []
        for name, value in re.findall(r"#define (TUTTI_\w+) \(?(-?\w+)\)?\s*$", text, flags=re.M):
            self.constants.append((name, value))
        self.macros = len(self.constants)
        text = re.sub(r"^ *#.*(\\\n.*)*$", "", text, flags=re.M)
        text = re.sub(r"\s+", " ", text)
        for body in re.findall(r"enum \{(.*?)\};", text):
            self.constants += re.findall(r"(TUTTI_\w+) = (-?\d+)", body)
        self.enumerators = len(re.findall(r"\bTUTTI_\w+ =", text))
        for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", text):
            self.structs[name] = [self.field(one) for one in self.statements(body)]
        text = re.sub(r"typedef struct \{.*?\} \w+;", "", text)
        self.opaque = re.findall(r"typedef struct (\w+) \1;", text)
        for kind, name in re.findall(r"typedef (\w+) (\w+);", text):
            self.alias[name] = kind
        self.callbacks = set(re.findall(r"typedef void \(\*(\w+)\)", text))
        for result, name, parameters in re.findall(
                r"TUTTI_EXPORT ((?:const )?\w+\*?) ?(\w+)\((.*?)\);", text):
            self.functions.append((result, name, self.split(parameters)))
        self.exported = text.count("TUTTI_EXPORT ")

    @staticmethod
    def statements(body):
        return [one.strip() for one in body.split(";") if one.strip()]

    @staticmethod
    def split(parameters):
        """At commas that are in no parentheses."""
        parts, depth = [""], 0
        for c in parameters:
            depth += (c == "(") - (c == ")")
            if c == "," and depth == 0:
                parts.append("")
            else:
                parts[-1] += c
        return [one.strip() for one in parts if one.strip() != "void"]

    @staticmethod
    def field(text):
        """(type, name, elements or None); a function is of type "function"."""
        function = re.fullmatch(r".*\(\*(\w+)\)\(.*\)", text)
        if function:
            return "function", function[1], None
        match = re.fullmatch(r"(?:const )?(\w+(?:\*)*) ?(\w+)(?:\[(\d+)\])?", text)
        assert match, text
        return match[1], match[2], match[3]

    def plain(self, kind):
        while kind in self.alias:
            kind = self.alias[kind]
        return kind

    def layout(self, kind):
        """(bytes, alignment)"""
        kind = self.plain(kind)
        if kind.endswith("*") or kind == "function" or kind in self.callbacks:
            return 8, 8
        if kind in BYTES:
            return BYTES[kind], BYTES[kind]
        size, most = 0, 1
        for member, _, count in self.structs[kind]:
            bytes_, alignment = self.layout(member)
            size = -(-size // alignment) * alignment + bytes_ * int(count or 1)
            most = max(most, alignment)
        return -(-size // most) * most, most

    def component(self, struct, kind, name, count):
        plain = self.plain(kind)
        if kind == "function" or plain in self.callbacks:
            return f"type(c_funptr) :: {name} = c_null_funptr"
        if plain.endswith("*"):
            return f"type(c_ptr) :: {name} = c_null_ptr"
        if plain in self.structs:
            return f"type({plain}) :: {name}"
        fortran = NUMBERS[plain]
        value = f"{self.layout(struct)[0]}_c_size_t" if name == "struct_size" else ZERO[fortran]
        return f"{fortran} :: {name}" + (f"({count})" if count else "") + f" = {value}"

    def dummy(self, text):
        """(name, declaration) of a parameter."""
        kind, name, _ = self.field(text)
        constant = text.startswith("const ")
        plain = self.plain(kind.rstrip("*"))
        stars = kind.count("*")
        optional = "" if name in NEEDED else ", optional"
        if kind == "function" or plain in self.callbacks:
            return name, f"type(c_funptr), value :: {name}"
        if stars == 0:
            return name, f"{NUMBERS[plain]}, value :: {name}"
        if plain in self.opaque:
            if stars == 1:
                return name, f"type({plain}), value :: {name}"
            return name, f"type({plain}), intent(out) :: {name}"
        if plain == "void":
            return name, f"type(c_ptr), value :: {name}"
        if plain in self.structs:
            many = "(*)" if name == "results" else ""
            intent = "in" if constant else "inout"
            return name, f"type({plain}), intent({intent}){optional} :: {name}{many}"
        intent = "in" if constant else "inout"
        return name, f"{NUMBERS[plain]}, intent({intent}){optional} :: {name}(*)"

    def result(self, kind):
        plain = self.plain(kind.replace("const ", ""))
        if plain.endswith("*"):
            return "type(c_ptr)"
        return f"type({plain})" if plain in self.structs else NUMBERS[plain]


def wrapped(text, indent):
    """In lines of at most 100 columns."""
    lines = [""]
    for word in re.findall(r"\S+\s*", text):
        if len(indent) + len(lines[-1]) + len(word) > 97:
            lines.append("    ")
        lines[-1] += word
    return " &\n".join(indent + line.rstrip() for line in lines)


def module_of(header):
    lines = ["! The C interface of tutti (tutti/tutti.h), name by name; module tutti adds to it what takes arrays.",
             "! Written by from_header.py: change that, or the header.",
             "!",
             "! Pointers to what C may leave out are optional.  A handle is passed as the one pointer that it is.",
             "module tutti_c",
             "  use, intrinsic :: iso_c_binding",
             "  implicit none",
             "  public",
             ""]
    for name, value in header.constants:
        if value == "INT64_MAX":
            lines.append(f"  integer(c_int64_t), parameter :: {name} = huge(0_c_int64_t)")
        else:
            lines.append(f"  integer(c_int32_t), parameter :: {name} = {value}_c_int32_t")
    for name in header.opaque:
        lines += ["", f"  type, bind(c) :: {name}", "    type(c_ptr) :: handle = c_null_ptr",
                  f"  end type {name}"]
    for name, fields in header.structs.items():
        lines += ["", f"  type, bind(c) :: {name}"]
        lines += ["    " + header.component(name, *field) for field in fields]
        lines += [f"  end type {name}"]
    lines += ["", "  interface"]
    for result, name, parameters in header.functions:
        dummies = [header.dummy(one) for one in parameters]
        kind = "subroutine" if result == "void" else "function"
        head = f"{kind} {name}({', '.join(one for one, _ in dummies)}) bind(c)"
        lines += [wrapped(head, "    "), "      import"]
        lines += ["      " + declaration for _, declaration in dummies]
        if result != "void":
            lines.append(f"      {header.result(result)} :: {name}")
        lines.append(f"    end {kind} {name}")
    lines += ["  end interface", "end module tutti_c", ""]
    return "\n".join(lines)


def main():
    header = Header(pathlib.Path(sys.argv[1]).read_text())
    text = module_of(header)
    # What is not understood must not be left out in silence.
    enumerators = len(header.constants) - header.macros
    if len(header.functions) != header.exported or enumerators != header.enumerators:
        print(f"{sys.argv[1]}: {len(header.functions)} of {header.exported} functions and "
              f"{enumerators} of {header.enumerators} enumerators are understood")
        return 1
    module = pathlib.Path(sys.argv[2])
    if sys.argv[3:] != ["--check"]:
        module.write_text(text)
    elif not module.exists() or module.read_text() != text:
        print(f"{module} differs from {sys.argv[1]}: run {sys.argv[0]} {sys.argv[1]} {module}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
