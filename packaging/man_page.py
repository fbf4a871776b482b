#!/usr/bin/env python3
"""Writes the man page of a program from its --help, and from that of its subcommands.

usage: man_page.py PROGRAM NAME VERSION [SUBCOMMAND...]

Subcommands that --help lists need not be named.  The page goes to standard output.
"""
import re
import subprocess
import sys

SECTIONS = {"Options": "OPTIONS", "Positionals": "ARGUMENTS", "Environment": "ENVIRONMENT"}


class Unreadable(Exception):
    pass


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def read(text, name):
    """--help as (what it does, [usage], {section: [(entry, text)]})."""
    about, usages, sections, current = [], [], {}, None
    for line in text.splitlines():
        if usage := re.match(r"[Uu]sage: *(.+)", line):
            usages.append(usage.group(1))
        elif heading := re.fullmatch(r"([A-Z][A-Za-z ]+):", line):
            current = sections.setdefault(heading.group(1), [])
        elif not usages:
            about.append(line)
        elif current is not None and (entry := re.match(r"  (\S.*?)  +(\S.*)", line)):
            current.append([entry.group(1), entry.group(2)])
        elif current is not None and re.match(r"  \S", line):
            current.append([line.strip(), ""])
        elif current and line.strip():  # an entry that is longer than its column, or goes on
            current[-1][1] = (current[-1][1] + " " + line.strip()).strip()
    about = "\n".join(about).strip()
    if not usages or not about:
        raise Unreadable(f"{name} --help: expected what it does, and a line that begins with \"Usage:\"")
    return about, usages, sections


def help_of(program, *subcommand):
    result = subprocess.run([program, *subcommand, "--help"], capture_output=True, text=True, timeout=60)
    if result.returncode != 0:
        raise Unreadable(f"{' '.join([program, *subcommand])} --help: exit status {result.returncode}: {result.stderr}")
    return result.stdout


def entries(rows):
    return "".join(f".TP\n.B {escape(entry)}\n{escape(text)}\n" for entry, text in rows)


def page(name, version, text, help_of_subcommand, subcommands=()):
    about, usages, sections = read(text, name)
    # The first sentence is the line by which apropos finds it.
    first = re.split(r"[.:;](?:\s|$)", " ".join(about.split()))[0]
    out = [f".\\\" Made by packaging/man_page.py from {name} --help.\n",
           f'.TH {name.upper()} 1 "" "tutti {version}" "User Commands"\n',
           f".SH NAME\n{name} \\- {escape(first[0].lower() + first[1:])}\n", ".SH SYNOPSIS\n"]
    listed = [entry for entry, _ in sections.pop("Subcommands", [])]
    names = listed + [s for s in subcommands if s not in listed]
    pages = [(s, read(help_of_subcommand(s), f"{name} {s}")) for s in names]
    for usage in usages + [u for _, (_, us, _) in pages for u in us]:
        command, _, rest = usage.partition(" ")
        out.append(f".B {escape(command)}\n{escape(rest)}\n.br\n")
    out.append(f".SH DESCRIPTION\n{escape(about)}\n")
    for heading, rows in sections.items():
        out.append(f".SH {SECTIONS.get(heading, heading.upper())}\n{entries(rows)}")
    for subcommand, (its_about, _, its_sections) in pages:
        out.append(f".SH THE SUBCOMMAND {escape(subcommand).upper()}\n{escape(its_about)}\n")
        for rows in its_sections.values():
            out.append(entries(row for row in rows if not row[0].startswith("-h,")))
    if "Environment" not in sections:
        out.append(".SH ENVIRONMENT\nSettings are variables TUTTI_*, which\n.B tutti\\-info settings\nlists.\n")
    others = sorted({"tutti-bench", "tutti-info", "tutti-mpirun", "tutti-softverbs", "tutti-tune"} - {name})
    out.append(".SH SEE ALSO\n" + ",\n".join(f".BR {escape(other)} (1)" for other in others).replace(
        ",\n", " ,\n") + "\n")
    return "".join(out)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    program, name, version, *subcommands = sys.argv[1:]
    try:
        print(page(name, version, help_of(program), lambda s: help_of(program, s), subcommands), end="")
    except Unreadable as unreadable:
        sys.exit(f"man_page.py: {unreadable}")


if __name__ == "__main__":
    main()
