#!/usr/bin/env python3
"""Promise: every tuning file that the library writes is valid by its JSON Schema, and the schema
refuses what the library refuses, as far as a schema can.

tuning_schema.py SCHEMA PROGRAM [TUTTI_TUNE]
PROGRAM prints {"valid": ..., "text": ...}, a line each; TUTTI_TUNE writes files, which are judged as well.
"""
import json
import os
import subprocess
import sys
import tempfile

DEBIAN = "/usr/bin/python3"  # has Debian's modules, which another python3 in front of it has not
try:
    import jsonschema
except ImportError:
    if sys.executable != DEBIAN and os.path.exists(DEBIAN) and "TUTTI_TEST_AGAIN" not in os.environ:
        os.execve(DEBIAN, [DEBIAN, *sys.argv], os.environ | {"TUTTI_TEST_AGAIN": "1"})
    print("skipped: the Python module jsonschema (Debian: python3-jsonschema) is not installed")
    sys.exit(77)

with open(sys.argv[1], encoding="utf-8") as file:
    schema = json.load(file)
judge = jsonschema.Draft202012Validator
judge.check_schema(schema)
validator = judge(schema)
counts = {True: 0, False: 0}
wrong = 0


def judged(text, valid):
    """Counts a text; says if the schema judges it otherwise."""
    global wrong
    errors = [error.message for error in validator.iter_errors(json.loads(text))]
    counts[valid] += 1
    if bool(errors) == valid:
        wrong += 1
        print("refused, but valid:" if valid else "accepted, but invalid:", errors[:3])
        print(text)


for line in subprocess.run(sys.argv[2], check=True, capture_output=True, text=True,
                           encoding="utf-8").stdout.splitlines():
    case = json.loads(line)
    judged(case["text"], case["valid"])

VIRTUAL = ["--virtual-time", "--fabric", "fdr", "--bytes", "8,4K"]
RUNS = [  # that have findings, in nodes of one rank and of two; and that have none
    ["--local", "3", "--ranks-per-node", "1", "--collectives", "barrier,allreduce", *VIRTUAL],
    ["--local", "4", "--ranks-per-node", "2", "--collectives", "allreduce,broadcast", *VIRTUAL],
    ["--local", "2", "--network-only", "--budget", "1"]]
written = 0
for arguments in RUNS if len(sys.argv) > 3 else []:
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "tuning.json")
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("TUTTI_")}
        subprocess.run([sys.argv[3], *arguments, "--out", name], check=True, capture_output=True,
                       env=environment)
        with open(name, encoding="utf-8") as file:
            judged(file.read(), True)
        written += 1
print(f"{counts[True]} valid texts, of which tutti-tune has written {written}, {counts[False]} "
      f"invalid ones, {wrong} judged otherwise")
sys.exit(wrong > 0 or min(counts.values()) < 20)
