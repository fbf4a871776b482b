#!/usr/bin/env python3
"""Checks the lengths of lines in texts, and what README.md and docs/ say against the files, the table
of settings and the programs.

check_texts.py ROOT [--bin FOLDER]   prints violations, exit status 1 if there are any; FOLDER has
                                     tutti-bench, tutti-tune and tutti-info, without it their options
                                     and docs/settings.md are not looked at
check_texts.py --self-test           shows that each rule can fail
"""
import pathlib
import re
import subprocess
import sys
import tempfile

README_LINES_MAX = 130
COLUMNS_MAX = 120
# Texts with longer lines outside of tables: a folder whose texts are within the limit leaves the list.
LONG_LINES = ()
SETTING = re.compile(r"\bTUTTI_[A-Z0-9_]*[A-Z0-9]\b(?![_*])")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
# Whose options are checked; what comes before the program in a line belongs to a launcher.
PROGRAM = re.compile(r"tutti-info (?:plan|settings)\b|tutti-bench\b|tutti-mpirun\b|tutti-tune\b|tutti-info\b|scripts/[a-z.-]+")
COMMANDS = ("tutti-bench", "tutti-mpirun", "tutti-tune", "tutti-info", "tutti-info plan", "tutti-info settings",
            "scripts/device-tests", "scripts/kernel-verbs", "scripts/test.sh")
# What runs another program: options after the name of that one are not the script's.
RUNNERS = ("scripts/softverbs", "scripts/kernel-verbs", "tutti-mpirun")


def pages_of(root):
    return [page for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]
            if page.exists()]


def texts_of(root):
    """All texts of the project, but not what a build has made."""
    for page in sorted(root.rglob("*.md")):
        name = page.relative_to(root).as_posix()
        if not name.startswith(("build/", ".")):
            yield page, name


def without_fences(text):
    """Lines of code become empty, so that numbers of lines stay."""
    inside, lines = False, []
    for line in text.splitlines():
        fence = line.startswith("```")
        inside = inside != fence
        lines.append("" if inside or fence else line)
    return lines


def anchor_of(heading):
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def check_lengths(page, name):
    lines = page.read_text().splitlines()
    if name == "README.md" and len(lines) > README_LINES_MAX:
        yield f"{name}: {len(lines)} lines; at most {README_LINES_MAX}"
    if name.startswith(LONG_LINES):
        return
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX and not line.startswith("|"):
            yield f"{name}:{number}: longer than {COLUMNS_MAX} characters"


def check_links(page, name):
    for number, line in enumerate(without_fences(page.read_text()), 1):
        for link in LINK.findall(line):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists():
                yield f"{name}:{number}: there is no {link}"
            elif anchor and anchor not in {
                    anchor_of(heading.lstrip("#"))
                    for heading in without_fences(target.read_text()) if heading.startswith("#")}:
                yield f"{name}:{number}: {path or name} has no heading for #{anchor}"


def settings_in_table(root):
    """The variables of settings_table.cpp: the strings that are nothing but a name."""
    table = root / "algorithms/runtime/settings_table.cpp"
    return set(re.findall(r'"(TUTTI_[A-Z0-9_]+)"', table.read_text())) if table.exists() else set()


def check_settings(root):
    """Names in texts exist: as a variable, in C, in CMake or in a script."""
    table = settings_in_table(root)
    known = set(table)
    for path in [root / "include/tutti/tutti.h", root / "CMakeLists.txt",
                 *(root / "bindings").glob("*/CMakeLists.txt"), *(root / "scripts").glob("*")]:
        if path.is_file():
            known |= set(SETTING.findall(path.read_text()))
    for page in pages_of(root):
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for setting in SETTING.findall(line):
                if setting not in known:
                    yield f"{page.relative_to(root)}:{number}: there is no {setting}"
    device = root / "verbs/soft/settings.cpp"
    if device.exists():
        read = set(re.findall(r'"(TUTTI_SOFT_[A-Z_]+)"', device.read_text()))
        for setting in sorted(read ^ {name for name in table if name.startswith("TUTTI_SOFT_")}):
            yield (f"{setting}: either verbs/soft/settings.cpp or "
                   "algorithms/runtime/settings_table.cpp has it, not both")


def commands_in(page):
    """(line, text) of what looks like a command: lines of code, and spans in other lines."""
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
        elif inside:
            yield number, re.split(r"(?:^|\s)#\s", line)[0]
        else:
            for span in re.findall(r"`([^`]+)`", line):
                yield number, span


def check_options(root, options_of):
    """Options in texts exist.  options_of: program -> the set of its options, None if unknown."""
    own = set().union(*(options_of(command) or set() for command in COMMANDS))
    for page in pages_of(root):
        for number, text in commands_in(page):
            where = f"{page.relative_to(root)}:{number}"
            found = list(PROGRAM.finditer(text))
            if not found:
                if text.startswith("--"):
                    for option in OPTION.findall(text):
                        if option not in own:
                            yield f"{where}: no program has {option}"
                continue
            for i, match in enumerate(found):
                program = match.group()
                options = options_of(program)
                end = found[i + 1].start() if i + 1 < len(found) else len(text)
                rest = text[match.end():end]
                if program in RUNNERS:
                    rest = re.match(r"(?:\s+--[a-z-]+\s+\S+)*", rest).group()
                if options is None:
                    yield f"{where}: there is no {program}"
                    continue
                for option in OPTION.findall(rest):
                    if option not in options:
                        yield f"{where}: {program} has no {option}"


def check_settings_page(root, printed):
    page = root / "docs/settings.md"
    if not page.exists() or page.read_text() != printed:
        yield ("docs/settings.md: differs from algorithms/runtime/settings_table.cpp; write it anew: "
               "tutti-info settings --format markdown > docs/settings.md")


def help_reader(root, folder):
    known = {}

    def options_of(program):
        if program not in known:
            name, *command = program.split()
            path = root / name if name.startswith("scripts/") else folder / name
            if name == "tutti-mpirun":  # which a build without MPI does not make
                path = root / "bindings/mpi/tutti-mpirun.in"
            known[program] = None
            if path.exists():
                text = subprocess.run([path, *command, "--help"], capture_output=True, text=True,
                                      timeout=60, check=True).stdout
                known[program] = set(OPTION.findall(text)) | {"--help"}
        return known[program]
    return options_of


def check(root, folder=None):
    root = pathlib.Path(root)
    for page, name in texts_of(root):
        yield from check_lengths(page, name)
    for page in pages_of(root):
        yield from check_links(page, page.relative_to(root).as_posix())
    yield from check_settings(root)
    if folder:
        folder = pathlib.Path(folder)
        yield from check_options(root, help_reader(root, folder))
        yield from check_settings_page(root, subprocess.run(
            [folder / "tutti-info", "settings", "--format", "markdown"], capture_output=True,
            text=True, timeout=60, check=True).stdout)


def self_test():
    right = {
        "README.md": "# a\n[b](docs/b.md#what-is-it) TUTTI_WAIT\n\n| " + "x" * 200 + " |\n",
        "docs/b.md": "# B\n## What is it?\n`tutti-bench all --local 2`, `--local`\n"
                     "```\nmpirun --strange -n 2 tutti-bench all --local 2   # a --remark\n"
                     "scripts/kernel-verbs --nodes 2 foreign --strange\n[no](link)\n```\n",
        "algorithms/runtime/settings_table.cpp": '"TUTTI_WAIT", "TUTTI_SOFT_LOG"\n',
        "verbs/soft/settings.cpp": '"TUTTI_SOFT_LOG"\n',
        "docs/settings.md": "fresh\n",
    }
    programs = {"tutti-bench": {"--local"}, "scripts/kernel-verbs": {"--nodes"},
                "tutti-tune": set(), "tutti-info": set(), "tutti-info plan": set(), "tutti-info settings": set()}
    planted = [
        (None, None, None),
        ("README.md", "a\n" * 131, "131 lines"),
        ("README.md", "x" * 121 + "\n", "longer than"),
        ("tests/data/README.md", "a\n" + "x" * 121 + "\n", "README.md:2: longer than"),
        ("README.md", "[b](docs/none.md)\n", "there is no docs/none.md"),
        ("docs/b.md", "[b](../README.md#none)\n", "no heading"),
        ("docs/b.md", "TUTTI_WIAT\n", "there is no TUTTI_WIAT"),
        ("verbs/soft/settings.cpp", '"TUTTI_SOFT_NEW"\n', "not both"),
        ("docs/b.md", "`tutti-bench all --lokal 2`\n", "tutti-bench has no --lokal"),
        ("docs/b.md", "```\ntutti-info settings --local 2\n```\n", "settings has no --local"),
        ("docs/b.md", "`--lokal`\n", "no program has --lokal"),
        ("docs/b.md", "`scripts/none --help`\n", "there is no scripts/none"),
        ("docs/settings.md", "stale\n", "differs from"),
    ]
    for name, text, expected in planted:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for file, content in {**right, **({name: text} if name else {})}.items():
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).write_text(content)
            found = [*check(root), *check_options(root, programs.get),
                     *check_settings_page(root, "fresh\n")]
            if not (any(expected in line for line in found) if expected else not found):
                print(f"{name}: expected {expected or 'no violation'}, found {found}")
                return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    if len(sys.argv) not in (2, 4) or (len(sys.argv) == 4 and sys.argv[2] != "--bin"):
        sys.exit(__doc__)
    violations = list(check(sys.argv[1], sys.argv[3] if len(sys.argv) == 4 else None))
    print("\n".join(violations))
    sys.exit(1 if violations else 0)
