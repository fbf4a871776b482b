#!/usr/bin/env python3
"""Promise: every tuning file that the library writes is valid by its JSON Schema, and the schema
refuses what the library refuses, as far as a schema can.

tuning_schema.py SCHEMA PROGRAM     PROGRAM prints {"valid": ..., "text": ...}, a line each
"""
import json
import os
import subprocess
import sys

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
for line in subprocess.run(sys.argv[2], check=True, capture_output=True, text=True,
                           encoding="utf-8").stdout.splitlines():
    case = json.loads(line)
    errors = [error.message for error in validator.iter_errors(json.loads(case["text"]))]
    counts[case["valid"]] += 1
    if bool(errors) == case["valid"]:
        wrong += 1
        print("refused, but valid:" if case["valid"] else "accepted, but invalid:", errors[:3])
        print(case["text"])
print(f"{counts[True]} valid texts, {counts[False]} invalid ones, {wrong} judged otherwise")
sys.exit(wrong > 0 or min(counts.values()) < 20)
