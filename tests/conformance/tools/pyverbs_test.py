#!/usr/bin/env python3
"""Promise: rdma-core's own tests, written against adapters, end on the software device as expected.

They come with Debian's package python3-pyverbs and are unpacked into a temporary folder.  All of
them run in one process, as their authors have it.  Each has to end as pyverbs_expected.txt says: a
test that fails, is skipped or passes without being expected to is an error, and so is one that has
vanished, or that is skipped for another reason.  77: the package is not installed, has no tests
here, or is of another version than the list.

  pyverbs_test.py SOFTVERBS LIST [DEVICE [PORT]]   runs them and judges
  pyverbs_test.py --judges LIST                    judges invented outcomes: does it see what differs
  pyverbs_test.py --run FOLDER DEVICE PORT         (for itself) runs them and prints their outcomes
"""
import fnmatch
import gzip
import os
import re
import subprocess
import sys
import tempfile

INSTALLED = "/usr/share/doc/rdma-core/tests"
PYTHON = "/usr/bin/python3"  # Debian's own, which finds Debian's modules.
SECONDS = 100  # They take one.


def skip(reason):
    print(reason)
    sys.exit(77)


def fail(reason):
    print(f"pyverbs_test.py: {reason}")
    sys.exit(1)


def read_expected(path):
    """The version, and (outcome, class pattern, names or number, reason's pattern) of each line."""
    version, rows = None, []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            cells = [cell.strip() for cell in line.split(" | ")]
            if cells[0] == "version" and len(cells) == 2:
                version = cells[1]
            elif cells[0] in ("passes", "skipped", "fails") and \
                    len(cells) == (3 if cells[0] == "passes" else 4):
                names = int(cells[2]) if cells[2].isdigit() else cells[2].split()
                rows.append((cells[0], cells[1], names, cells[3] if len(cells) == 4 else ""))
            else:
                fail(f"{path}:{number}: \"{line}\"; expected \"version | N\", \"passes | CLASS | "
                     f"NAMES\", or \"skipped\" or \"fails\" with \" | REASON\" behind these")
    if not version:
        fail(f"{path}: no line \"version | N\"")
    return version, rows


def differences(rows, outcomes):
    """What differs; `outcomes`: (outcome, reason) by the test's name, FILE.CLASS.NAME."""
    found, claimed = [], {}
    for outcome, pattern, names, reason in rows:
        if isinstance(names, int):
            matching = [test for test in outcomes
                        if fnmatch.fnmatchcase(test.rpartition(".")[0], pattern)]
            if len(matching) != names:
                found.append(f"{pattern}: {len(matching)} tests; expected {names}")
        else:
            matching = [f"{pattern}.{name}" for name in names]
        for test in matching:
            claimed[test] = (outcome, reason)
    for test, (outcome, reason) in sorted(claimed.items()):
        ended, said = outcomes.get(test, ("not there", ""))
        if ended != outcome:
            found.append(f"{test}: {ended}; expected: {outcome} {reason}".rstrip() +
                         f"\n    {said}".rstrip())
        elif not re.search(reason, said):
            found.append(f"{test}: {ended} for another reason than \"{reason}\":\n    {said}")
    found += [f"{test}: {outcomes[test][0]}, and not in the list\n    {outcomes[test][1]}".rstrip()
              for test in sorted(set(outcomes) - set(claimed))]
    return found


def run(folder, device, port):
    """Runs the tests, and prints a line when each begins and another when it ends."""
    import unittest

    sys.path[:0] = [folder, os.path.join(folder, "tests")]
    sys.argv = ["run_tests.py", "--dev", device, "--port", port]
    import tests  # theirs, as the next one
    from args_parser import parser
    parser.parse_args()

    class Result(unittest.TestResult):
        @staticmethod
        def say(test, outcome, reason=""):
            # A failed set-up of a class names the class in parentheses.
            name = test.id().removeprefix("tests.")
            print("\t".join(("outcome", name, outcome, " ".join(str(reason).split()))), flush=True)

        def startTest(self, test):
            print(f"begins\t{test.id()}", flush=True)
            super().startTest(test)

        def addSuccess(self, test):
            self.say(test, "passes")

        def addSkip(self, test, reason):
            self.say(test, "skipped", reason)

        def addFailure(self, test, error):
            self.say(test, "fails", f"{error[0].__name__}: {error[1]}")

        addError = addFailure

        def addSubTest(self, test, subtest, error):
            if error:
                self.say(test, "fails", f"{subtest}: {error[1]}")

        def addUnexpectedSuccess(self, test):
            self.say(test, "fails", "it was expected to fail")

        def addExpectedFailure(self, test, error):
            self.say(test, "passes")

    unittest.defaultTestLoader.loadTestsFromModule(tests).run(Result())
    print("end", flush=True)


def unpack(folder):
    os.mkdir(os.path.join(folder, "tests"))
    for name in os.listdir(INSTALLED):
        opened = gzip.open if name.endswith(".gz") else open
        with opened(os.path.join(INSTALLED, name), "rb") as source, \
                open(os.path.join(folder, "tests", name.removesuffix(".gz")), "wb") as target:
            target.write(source.read())


def installed_version():
    try:
        asked = subprocess.run(["dpkg-query", "-W", "-f=${source:Upstream-Version}", "python3-pyverbs"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except FileNotFoundError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def outcomes_on(softverbs, device, port):
    with tempfile.TemporaryDirectory() as folder:
        unpack(folder)
        output = os.path.join(folder, "output")
        with open(output, "w", encoding="utf-8") as stream:
            try:
                status = subprocess.run(
                    [softverbs, PYTHON, "-B", os.path.abspath(__file__), "--run", folder, device, port],
                    stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                    timeout=SECONDS, check=False).returncode
            except subprocess.TimeoutExpired:
                status = f"none after {SECONDS} s"
        with open(output, encoding="utf-8", errors="replace") as stream:
            lines = stream.read().splitlines()
    if status != 0 or "end" not in lines:
        begun = [line.split("\t")[1] for line in lines if line.startswith("begins\t")]
        print("\n".join(lines[-20:]))
        fail(f"the tests did not come to their end (status {status}); the last one was "
             f"{begun[-1] if begun else 'none'}")
    outcomes = {}
    for line in lines:
        if line.startswith("outcome\t"):
            _, name, outcome, reason = line.split("\t")
            # A failure in one part of a test is not undone by the next part.
            if outcomes.get(name, ("",))[0] != "fails":
                outcomes[name] = (outcome, reason)
    return outcomes


def judges(path):
    """Invented outcomes: those that the list expects, and then each of what has to be seen."""
    _, rows = read_expected(path)
    expected = {}
    for outcome, pattern, names, reason in rows:
        said = reason.partition("|")[0].replace("\\", "")
        for name in ([f"test_{i}" for i in range(names)] if isinstance(names, int) else names):
            expected[f"{pattern.replace('*', 'x')}.{name}"] = (outcome, said)
    same = differences(rows, expected)
    if same:
        fail("what is expected is taken for a difference:\n" + "\n".join(same))
    passed = next(test for test, (outcome, _) in expected.items() if outcome == "passes")
    skipped = next(test for test, (outcome, _) in expected.items() if outcome == "skipped")
    without = dict(expected)
    del without[passed]
    for what, outcomes in (
            ("a failure", {**expected, passed: ("fails", "AssertionError")}),
            ("a new skip", {**expected, passed: ("skipped", "not supported")}),
            ("a skipped test that runs", {**expected, skipped: ("passes", "")}),
            ("a skipped test that fails", {**expected, skipped: ("fails", "AssertionError")}),
            ("another reason", {**expected, skipped: ("skipped", "it is Tuesday")}),
            ("a test that has vanished", without),
            ("a new test", {**expected, "test_new.New.test_new": ("passes", "")})):
        if len(differences(rows, outcomes)) != 1:
            fail(f"{what} is not seen as one difference: {differences(rows, outcomes)}")


def main():
    arguments = sys.argv[1:]
    if len(arguments) == 4 and arguments[0] == "--run":
        run(*arguments[1:])
        return
    if len(arguments) == 2 and arguments[0] == "--judges":
        judges(arguments[1])
        return
    if not 2 <= len(arguments) <= 4:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    softverbs, path, device, port = arguments + ["soft0", "1"][len(arguments) - 2:]
    version, rows = read_expected(path)
    installed = installed_version()
    if not installed or not os.path.exists(PYTHON):
        skip("python3-pyverbs is not installed")
    if installed.partition(".")[0] != version:
        skip(f"python3-pyverbs is of rdma-core {installed}; the list is for {version}")
    if not os.path.exists(os.path.join(INSTALLED, "__init__.py")):
        skip(f"{INSTALLED} is not there: dpkg has been told to leave out documentation "
             f"(path-exclude), with which the package installs its tests")
    outcomes = outcomes_on(softverbs, device, port)
    found = differences(rows, outcomes)
    counts = [sum(outcome == kind for outcome, _ in outcomes.values())
              for kind in ("passes", "skipped", "fails")]
    print("{} tests: {} passed, {} skipped, {} failed".format(len(outcomes), *counts))
    if found:
        fail(f"differences from {path}: {len(found)}\n" + "\n".join(found))


main()
