#!/usr/bin/env bash
# caught.sh PROGRAM FILE: the program, whose releases are missing, must be caught by the thread
# sanitizer, in code of FILE.
set -uo pipefail
report=$(TSAN_OPTIONS="halt_on_error=1 exitcode=66" timeout 60 "$1" 2>&1)
code=$?
if [ $code -ne 66 ] || ! grep -q "WARNING: ThreadSanitizer: data race" <<<"$report" ||
  ! grep -qF "$2" <<<"$report"; then
  printf '%s\n' "$report"
  echo "the missing release was not reported: exit code $code"
  exit 1
fi
