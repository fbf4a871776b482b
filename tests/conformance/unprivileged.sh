#!/usr/bin/env bash
# unprivileged.sh DIRECTORY: runs the conformance programs as nobody, without any capability.
# Promise: the device needs no privilege.  For any other user than root the ordinary run says so.
set -uo pipefail
if [ "$(id -u)" -ne 0 ]; then
  echo "this user is not root: the ordinary run is without privileges"
  exit 77
fi
nobody=65534
as_nobody=(setpriv --reuid $nobody --regid $nobody --clear-groups --inh-caps=-all
  --bounding-set=-all --no-new-privs)
if ! "${as_nobody[@]}" true; then
  echo "setpriv of util-linux is needed"
  exit 77
fi
failed=()
for name in loopback state errors receive limits polling notification event datagram extended \
  process adverse atomic semantics kills; do
  program=$1/conformance_$name
  if ! "${as_nobody[@]}" test -x "$program"; then
    echo "nobody may not run $program"
    exit 77
  fi
  (cd / && "${as_nobody[@]}" "$program" --gtest_brief=1) || failed+=("$name")
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed without privileges: ${failed[*]}"
  exit 1
fi
