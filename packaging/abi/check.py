#!/usr/bin/env python3
"""Compares the binary interface of libtutti.so with the baseline beside this file, by libabigail.

usage: check.py [--update] LIBRARY INCLUDE CXX

LIBRARY is libtutti.so, whose symbols count.  It has no debug information, so the types come from the
headers in the folder INCLUDE, compiled by CXX: every public type with its layout, every function of
the C interface with its parameters.  Exit status 0: programs that were linked with the baseline still
work, with new functions perhaps; 1: something else has changed, and abidiff's report says what;
77: libabigail is not installed.  --update writes the baseline anew.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def functions_of_c(header):
    """The functions that tutti.h declares."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    return sorted(set(re.findall(r"TUTTI_EXPORT[^;(]*?\b(tutti_\w+)\(", text)))


def types_of_cxx(headers):
    """The classes and enumerations of namespace tutti itself, templates left out."""
    found = set()
    for header in headers:
        namespaces, before = [], ""
        for line in header.read_text().splitlines():
            if namespace := re.match(r"(?:inline )?namespace ?([\w:]*) ?\{", line):
                namespaces.append(namespace.group(1))
            elif re.match(r"\}  // namespace", line):
                namespaces.pop()
            elif namespaces == ["tutti"] and not before.startswith("template"):
                declared = re.match(
                    r"(?:class|struct|enum class) (?:\[\[.*?\]\] )?(?:TUTTI_EXPORT )?(\w+)\b(?!.*;$)", line)
                if declared:
                    found.add(declared.group(1))
            before = line
    return sorted(found)


def stand_in(include):
    """A source whose debug information has the public types, and nothing else of note."""
    folder = include / "tutti"
    functions = functions_of_c(folder / "tutti.h")
    types = types_of_cxx(p for p in sorted(folder.glob("*.hpp")) if not p.name.startswith("mpi_"))
    if len(functions) < 50 or len(types) < 20:
        sys.exit(f"check.py: found {len(functions)} functions and {len(types)} types in {folder}; expected more")
    # A variable each, so that another one is an addition, not a change.
    variables = [f"decltype(&{f}) c_{f}" for f in functions] + [f"tutti::{t}* cxx_{t}" for t in types]
    return ("#include <tutti/tutti.h>\n#include <tutti/tutti.hpp>\n"
            + "".join(f'__attribute__((visibility("default"))) {v};\n' for v in variables))


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300)


def must(*command):
    result = run(*command)
    if result.returncode != 0:
        sys.exit(f"check.py: {' '.join(str(c) for c in command)}:\n{result.stdout}{result.stderr}")


def describe(library, include, cxx, folder):
    """Writes symbols.abi and types.abi into `folder`."""
    source, types = folder / "types.cpp", folder / "types.so"
    source.write_text(stand_in(include))
    must(cxx, "-std=c++20", "-g", "-O0", "-fPIC", "-shared",
         "-fvisibility=hidden", "-I", include, source, "-o", types)
    plain = ("--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-parameter-names")
    # Types of the standard library are the compiler's to keep; what has one of them as a member has its
    # place and size all the same.
    suppressed = folder / "suppressed"
    suppressed.write_text("[suppress_type]\n  name_regexp = ^(std|__gnu_cxx)::\n  drop = yes\n")
    must("abidw", *plain, "--suppressions", suppressed, "--out-file", folder / "types.abi", types)
    must("abidw", *plain, "--out-file", folder / "symbols.abi", library)


def main():
    arguments = sys.argv[1:]
    update = arguments[:1] == ["--update"]
    if len(arguments) - update != 3:
        sys.exit(__doc__)
    if not shutil.which("abidw") or not shutil.which("abidiff"):
        print("skipped: libabigail (Debian: abigail-tools) is not installed")
        sys.exit(77)
    library, include, cxx = arguments[update:]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        describe(pathlib.Path(library), pathlib.Path(include), cxx, folder)
        if update:
            for part in ("symbols.abi", "types.abi"):
                shutil.copy(folder / part, HERE / part)
            return
        changed = False
        for part in ("symbols.abi", "types.abi"):
            result = run("abidiff", "--no-added-syms", "--harmless", HERE / part, folder / part)
            if result.returncode != 0:
                changed = True
                print(result.stdout + result.stderr)
        if changed:
            sys.exit("The binary interface is not that of the baseline (packaging/abi).  If that is meant: the minor\n"
                     "version has to rise after a release, CHANGELOG.md says it, and check.py --update writes the\n"
                     "new baseline.")


if __name__ == "__main__":
    main()
