#!/usr/bin/env python3
"""Runs clang-tidy over the library's sources, many of them as one translation unit: most of its time goes
into headers, which are then looked at once.  Files whose local names would collide come into different
units; where a unit fails, each of its files is looked at alone, so that what is reported is what clang-tidy
says of single files.  usage: tests/tidy/clang_tidy.py BUILD_FOLDER FILE...; the folder has
compile_commands.json of Clang, without precompiled headers."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

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


def main():
    folder = pathlib.Path(sys.argv[1])
    commands = {os.path.realpath(entry["file"]): entry
                for entry in json.loads((folder / "compile_commands.json").read_text())}
    files = [os.path.realpath(file) for file in sys.argv[2:]]
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


if __name__ == "__main__":
    sys.exit(main())
