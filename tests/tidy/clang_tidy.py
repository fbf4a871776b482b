#!/usr/bin/env python3
"""Runs clang-tidy over the library's sources, many of them as one translation unit: most of its time goes
into headers, which are then looked at once.  Files whose local names would collide come into different
units; where a unit fails, each of its files is looked at alone, so that what is reported is what clang-tidy
says of single files.  usage: tests/tidy/clang_tidy.py BUILD_FOLDER FILE...; the folder has
compile_commands.json of Clang, without precompiled headers.  --self-test instead: of planted files."""
import concurrent.futures
import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LOCAL = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.M | re.S)
# What is declared in the first column: types, and functions and variables by the word before "(", "=",
# "{", "[" or ";".
TYPES = re.compile(r"^(?:class|struct|union|enum(?: class)?|using|concept) (\w+)", re.M)
OTHERS = re.compile(r"^(?![ #}/)])[^\n(={;]*?\b(\w+)(?:\(|\[| = |\{|;)", re.M)


def local_names(text):
    names = set()
    for part in LOCAL.findall(text):
        names.update(TYPES.findall(part))
        names.update(OTHERS.findall(part))
    # Macros and aliases of a file are seen by those after it.
    names.update(re.findall(r"^#define (\w+)", text, re.M))
    names.update(re.findall(r"^(?:using|namespace) (\w+) =", text, re.M))
    return names


def units(commands, files):
    """Groups of files of equal flags and without a common local name, each in one unit."""
    groups = []
    # Flags of one library are alike; large files first, so that units come out even.
    for file in sorted(files, key=os.path.getsize, reverse=True):
        command = commands[file]["command"].split(" -o ")[0]
        text = pathlib.Path(file).read_text()
        names = local_names(text)
        words = set(re.findall(r"(?<!\.)(?<!->)\b[A-Za-z]\w*", text))
        for group in groups:
            if (group["command"] == command and group["size"] < 150_000
                    and not group["names"] & words and not group["words"] & names):
                break
        else:
            group = {"command": command, "names": set(), "words": set(), "files": [], "size": 0}
            groups.append(group)
        group["names"] |= names
        group["words"] |= words
        group["files"].append(file)
        group["size"] += os.path.getsize(file)
    return groups


def tidy(folder, file, *options):
    result = subprocess.run(["clang-tidy", "--quiet", "-p", folder, *options, file], capture_output=True,
                            text=True)
    return result.returncode == 0, result.stdout + result.stderr


def check(folder, files):
    """The exit status; prints what was found."""
    commands = {os.path.realpath(entry["file"]): entry
                for entry in json.loads((folder / "compile_commands.json").read_text())}
    files = [os.path.realpath(file) for file in files]
    missing = [file for file in files if file not in commands]
    for file in missing:
        print(f"clang_tidy.py: error: {file}: not compiled in {folder}, so that it cannot be looked at")
    if missing or not files:
        return 1
    groups = units(commands, files)
    united = folder / "clang_tidy"
    united.mkdir(exist_ok=True)
    entries = []
    for number, group in enumerate(groups):
        unit = united / f"unit_{number}.cpp"
        unit.write_text("".join(f'#include "{file}"\n' for file in group["files"]))
        group["unit"] = str(unit.resolve())
        entries.append({"directory": commands[group["files"][0]]["directory"], "file": group["unit"],
                        "command": f'{group["command"]} -o unit.o -c {group["unit"]}'})
    (united / "compile_commands.json").write_text(json.dumps(entries))

    def look_at(group):
        good, text = tidy(united, group["unit"], "--checks=-bugprone-suspicious-include")
        if good or len(group["files"]) == 1:
            return good, text
        results = [tidy(folder, file) for file in group["files"]]
        good = all(result[0] for result in results)
        print(f"clang_tidy.py: one by one: {' '.join(group['files'])}", "" if not good else "\n" + text)
        return good, "".join(result[1] for result in results)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(look_at, sorted(groups, key=lambda group: -group["size"])))
    for good, text in results:
        if not good:
            print(text)
    print(f"clang_tidy.py: {len(files)} files in {len(groups)} units:",
          "clean" if all(good for good, _ in results) else "findings")
    return 0 if all(good for good, _ in results) else 1


def self_test():
    if shutil.which("clang-tidy") is None:
        print("skipped: clang-tidy is not there")
        return 77
    clean = {"a.cpp": "namespace {\nint one() { return 1; }\n}  // namespace\nint a() { return one(); }\n",
             "b.cpp": "namespace {\nint two() { return 2; }\n}  // namespace\nint b() { return two(); }\n",
             "c.cpp": "int c() { return 3; }\n"}
    null = "\nint* c() { return 0; }\n"  # in line 2, against modernize-use-nullptr
    planted = [  # what of the files differs, those to look at, exit status, what is said
        ({}, "abc", 0, "3 files in 1 units: clean"),
        ({"c.cpp": null}, "abc", 1, "c.cpp:2:19: error: use nullptr"),
        ({"c.cpp": null}, "abc", 1, "3 files in 1 units: findings"),
        ({"c.cpp": null}, "c", 1, "c.cpp:2:19: error: use nullptr"),
        # Names that would collide; and such that this script does not know to be local.
        ({"b.cpp": clean["a.cpp"].replace("int a", "int b")}, "abc", 0, "3 files in 2 units: clean"),
        ({"b.cpp": "static int two;\nint b() { return two; }\n",
          "c.cpp": "static int two;\nint c() { return two; }\n"}, "abc", 0, "one by one: "),
        ({}, "abd", 1, "d.cpp: not compiled in "),
        ({}, "", 1, ""),
    ]

    def found(changed, names):
        with tempfile.TemporaryDirectory() as name:
            # By the rules of the project, which are for files in folders of these names.
            folder = pathlib.Path(name) / "algorithms"
            folder.mkdir()
            shutil.copy(pathlib.Path(__file__).parents[2] / ".clang-tidy", folder)
            for file, text in {**clean, **changed}.items():
                (folder / file).write_text(text)
            (folder / "compile_commands.json").write_text(json.dumps(
                [{"directory": str(folder), "file": str(folder / file),
                  "command": f"clang++ -o {file}.o -c {folder / file}"} for file in clean]))
            with contextlib.redirect_stdout(io.StringIO()) as output:
                status = check(folder, [folder / f"{letter}.cpp" for letter in names])
            return status, output.getvalue()

    for changed, names, status, text in planted:
        result, output = found(changed, names)
        if result != status or text not in output:
            print(f"{changed}, {names}: expected {status} and {text!r}, found {result} and:\n{output}")
            return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(check(pathlib.Path(sys.argv[1]), sys.argv[2:]))
