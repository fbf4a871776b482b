#!/usr/bin/env python3
"""Checks the include graph, what headers include, banned constructs, how comments begin, and the length of folder
READMEs.

check_sources.py ROOT       prints violations, exit status 1 if there are any
check_sources.py --self-test   shows that each rule can fail
"""
import pathlib
import re
import sys
import tempfile

# What each folder may include, besides itself, <tutti/...> and the outside world.
LAYERS = {
    "include": set(),
    "algorithms/plan": {"plan"},
    "algorithms/tune": {"plan", "tune"},
    "algorithms/engine": {"plan", "engine"},
    "algorithms/runtime": {"plan", "tune", "engine", "verbs", "shm", "bootstrap", "runtime"},
    "algorithms/api": {"plan", "tune", "runtime", "shm", "api"},
    "verbs": {"verbs"},
    "bootstrap": {"bootstrap"},
    "shm": {"shm"},
}
LAYER_NAMES = {"plan", "tune", "engine", "runtime", "api", "verbs", "bootstrap", "shm"}
PLAN_MAY_SEE = re.compile(r"<tutti/types\.hpp>|<[a-z_]+>|\"plan/[a-z]+/[a-z_]+\.hpp\"")
CORE_MAY_SEE = re.compile(r"<tutti/types\.hpp>|<[a-z_]+>|\"plan/core/[a-z_]+\.hpp\"")
MPI_FOLDERS = ("bootstrap/mpi", "bindings/mpi", "microbench/mpi", "tests/mpi", "examples/under_mpi",
               "examples/poisson/mpi_", "examples/poisson/poisson_mpi")

BANNED = [
    (re.compile(r"\bTODO\b|\bFIXME\b|\bXXX\b|\bTBD\b"), "unfinished work"),
    (re.compile(r"#define private"), "a redefined keyword"),
    (re.compile(r"(?<!\basm )\bvolatile\b"), "volatile for synchronisation"),
    (re.compile(r"\bstd::shared_ptr<ibv_"), "shared ownership of a verbs object"),
    (re.compile(r"\blog2?\s*\(|\bstd::log"), "a floating-point logarithm"),
]
BANNED_FOLDERS = ("include", "algorithms", "verbs", "bootstrap", "shm")

# A comment that opens like this is a fragment, which cannot be read without the line before.
FRAGMENT = re.compile(r"(Of|The same|That|Those)\b")
# Where comments are free of fragments: a folder that has become so is added here.
FREE_OF_FRAGMENTS = ("algorithms", "bootstrap", "examples", "include", "microbench", "shm", "tests",
                     "verbs")
# What a header has to include, by itself or by another header of the project, if it names this.  When
# the library is built, these are there anyway (CMakeLists.txt, tutti_precompiled).
STANDARD = {header: re.compile(r"\bstd::(?:" + names + r")\b") for header, names in {
    "algorithm": "sort|stable_sort|min|max|minmax|min_element|max_element|find|find_if|any_of|all_of|none_of|fill|"
                 "fill_n|copy|copy_n|copy_if|transform|remove_if|unique|reverse|rotate|equal|lower_bound|"
                 "upper_bound|binary_search|count|count_if|clamp|for_each|is_sorted",
    "array": "array",
    "atomic": r"atomic|atomic_ref|atomic_flag|memory_order\w*",
    "chrono": "chrono",
    "cstdint": r"u?int(?:8|16|32|64)_t|u?intptr_t",
    "cstring": "memcpy|memmove|memset|memcmp|strlen|strcmp|strerror|memchr",
    "deque": "deque",
    "functional": "function|hash|greater|less|invoke",
    "map": "map|multimap",
    "memory": "unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared",
    "mutex": "mutex|lock_guard|unique_lock|scoped_lock|call_once",
    "optional": "optional|nullopt",
    "span": "span",
    "string": "string|to_string",
    "thread": "thread|this_thread",
    "vector": "vector",
}.items()}
INCLUDE = re.compile(r"^\s*#\s*include\s+[<\"]([^>\"]+)[>\"]", flags=re.M)

TEST_NAME = re.compile(r"\b(?:TYPED_TEST|TEST|TEST_F|TEST_P)\(\s*\w+\s*,\s*(\w+)\s*\)")
# A string or character, which may hold what looks like a comment; or a comment, with its words.
STRING_OR_COMMENT = re.compile(
    r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|(?P<marker>//[/!]?<?|/\*[*!]?<?)\s*(?P<words>.*)')


def layer_of(path):
    text = path.as_posix()
    for folder in sorted(LAYERS, key=len, reverse=True):
        if text.startswith(folder + "/"):
            return folder
    return None


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def openings_of_comments(text):
    """(line, words) of each comment's first line; a comment goes on where the next line has the
    same marker in the same column."""
    before = None
    for number, line in enumerate(text.splitlines(), 1):
        comment = next((match for match in STRING_OR_COMMENT.finditer(line) if match["marker"]), None)
        here = (comment["marker"], comment.start()) if comment and comment["words"] else None
        if here and (here != before or here[0].startswith("/*") or line[:here[1]].strip()):
            yield number, comment["words"]
        before = here


def check_test_names(relative, text):
    if relative.as_posix().startswith("tests/"):
        for match in TEST_NAME.finditer(text):
            if not match[1].islower():
                line = text.count("\n", 0, match.start()) + 1
                yield f"{relative}:{line}: the name of a test is in snake_case: {match[1]}"


def check_fragments(relative, text):
    if relative.as_posix().startswith(tuple(folder + "/" for folder in FREE_OF_FRAGMENTS)):
        for number, words in openings_of_comments(text):
            if FRAGMENT.match(words):
                yield f"{relative}:{number}: a comment is a sentence with a subject: {words}"


def check_headers(texts):
    """Headers include what they name; a source begins with the header of its name, so that this is
    seen to stand alone.  `texts`: by path from the root, without comments."""
    standard = {}

    def header_of(path, name):
        beside = path.rpartition("/")[0] + "/"
        for folder in (beside, "include/", "algorithms/", ""):
            if folder + name in texts:
                return folder + name
        return None

    def standard_of(path, on_the_way=()):
        if path not in standard:
            found = set()
            for name in INCLUDE.findall(texts[path]):
                header = header_of(path, name)
                if header is None:
                    found.add(name)
                elif header not in on_the_way:
                    found |= standard_of(header, (*on_the_way, path))
            standard[path] = found
        return standard[path]

    for path, text in texts.items():
        if path.endswith(".hpp"):
            for header, names in STANDARD.items():
                named = names.search(text)
                if named and header not in standard_of(path):
                    yield f"{path}: names {named.group()}, and does not include <{header}>"
        own = path[:-3] + "hpp"
        if path.endswith(".cpp") and own in texts:
            first = INCLUDE.search(text)
            if not first or header_of(path, first.group(1)) != own:
                yield f"{path}: includes something before {own}"


def check_file(root, path):
    relative = path.relative_to(root)
    text = path.read_text()
    code = without_comments(text)
    folder = layer_of(relative)
    for number, line in enumerate(code.splitlines(), 1):
        where = f"{relative}:{number}"
        include = re.match(r"\s*#\s*include\s+([<\"][^>\"]+[>\"])", line)
        if include:
            name = include.group(1)
            first = name[1:].split("/")[0]
            if folder and first in LAYER_NAMES and first not in LAYERS[folder]:
                yield f"{where}: {folder} may not include {name}"
            if folder == "algorithms/plan" and not PLAN_MAY_SEE.fullmatch(name):
                yield f"{where}: a plan may include the standard library and types.hpp only"
            if relative.as_posix().startswith("algorithms/plan/core/") and not CORE_MAY_SEE.fullmatch(
                    name):
                yield f"{where}: plan/core may include no other folder of plan"
            if first.strip('">') == "mpi.h" and not relative.as_posix().startswith(MPI_FOLDERS):
                yield f"{where}: MPI is seen by {', '.join(MPI_FOLDERS)} only"
        if relative.as_posix().startswith(BANNED_FOLDERS):
            for pattern, what in BANNED:
                if pattern.search(line):
                    yield f"{where}: {what}: {line.strip()}"
            if len(text.splitlines()[number - 1]) > 100:
                yield f"{where}: longer than 100 columns"
    yield from check_fragments(relative, text)
    yield from check_test_names(relative, text)
    if path.suffix == ".hpp" and "#pragma once" not in text:
        yield f"{relative}: no #pragma once"


def check(root):
    root = pathlib.Path(root)
    texts = {}
    for folder in ("include", "algorithms", "verbs", "bootstrap", "shm", "microbench", "tests",
                   "examples", "bindings"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".hpp", ".cpp", ".h", ".c"):
                yield from check_file(root, path)
                if folder != "tests":
                    texts[path.relative_to(root).as_posix()] = without_comments(path.read_text())
    yield from check_headers(texts)
    for path in sorted(root.rglob("README.md")):
        relative = path.relative_to(root).as_posix()
        if relative.startswith(tuple(LAYERS)) and len(path.read_text().splitlines()) > 150:
            yield f"{relative}: a folder README has at most 150 lines"
    yield from check_readme(root)


def check_readme(root):
    """The README's example is a program that is built and run."""
    readme = root / "README.md"
    if not readme.exists():
        return
    block = re.search(r"```cpp\n(.*?)```", readme.read_text(), flags=re.S)
    example = (root / "examples/dot_product.cpp").read_text()
    if not block or block.group(1) != example:
        yield "README.md: the example differs from examples/dot_product.cpp"


def self_test():
    planted = {
        "verbs/a.hpp": ('#pragma once\n#include "plan/core/plan.hpp"\n', "may not include"),
        "algorithms/plan/b.cpp": ("#include <tutti/status.hpp>\n", "standard library"),
        "algorithms/plan/core/h.cpp": ('#include "plan/allreduce/ring.hpp"\n', "plan/core may"),
        "algorithms/engine/c.cpp": ('#include "verbs/device.hpp"\n', "may not include"),
        "bootstrap/d.cpp": ("#include <mpi.h>\n", "MPI is seen by"),
        "verbs/e.hpp": ("int x;\n", "pragma once"),
        "verbs/f.cpp": ("int n = log2(8.0);\n", "logarithm"),
        "README.md": ("```cpp\nint main() { return 1; }\n```\n", "the example differs"),
        "shm/g.cpp": ("volatile int flag;\n", "volatile"),
        "include/i.hpp": ("#pragma once\n/// Of each rank.\nint i;\n", "i.hpp:2: a comment is"),
        "include/j.h": ("int j; /* The same of others. */\n", "a comment is"),
        "include/k.cpp": ('auto k = "//";  // Those\n', "a comment is"),
        "include/l.cpp": ("// First.\n//\n// That of a paragraph.\n", "l.cpp:3: a comment is"),
        "tests/n.cpp": ("int n;\nTEST(Plan,\n     IsRight) {}\n", "n.cpp:2: the name of a test"),
        "include/m.cpp": ("int m;  // first\n// That\n", "m.cpp:2: a comment is"),
        "shm/n.hpp": ("#pragma once\n#include <array>\nstd::span<int> n();\n", "include <span>"),
    }
    sound = "// Whole, and on the next line\n// Of it.\nauto s = \"// Of\";  // one\n" \
            "                   // That goes on\n// Offered.\n"
    if [words for _, words in openings_of_comments(sound) if FRAGMENT.match(words)]:
        print("a line within a comment, or a string, is taken for the begin of a comment")
        return 1
    if len(list(check_headers({"shm/o.hpp": "", "shm/o.cpp": '#include <span>\n#include "shm/o.hpp"\n'}))) != 1:
        print("a source may include something before its header")
        return 1
    for name, (text, expected) in planted.items():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            (pathlib.Path(folder) / "examples").mkdir(exist_ok=True)
            (pathlib.Path(folder) / "examples/dot_product.cpp").write_text("int main() {}\n")
            found = list(check(folder))
            if not any(expected in line for line in found):
                print(f"{name}: expected a violation with '{expected}', found {found}")
                return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    violations = list(check(sys.argv[1]))
    print("\n".join(violations))
    sys.exit(1 if violations else 0)
