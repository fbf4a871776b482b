#!/bin/sh
# Promise: when a rank is killed amid calls that tutti does, the launcher ends the job within seconds,
# and its status says that something was wrong.
#
# usage: killed.sh LAUNCHER ARGUMENT... PROGRAM
seconds_max=10
begin=$(date +%s)
output=$(timeout -k 1 $seconds_max "$@" 2>&1)
status=$?
seconds=$(($(date +%s) - begin))
case $output in
  *"taken: yes"*) ;;
  *) echo "the calls were not taken: $output"; exit 1 ;;
esac
if [ $status -eq 0 ] || [ $seconds -ge $seconds_max ]; then
  echo "status $status after $seconds s: $output"
  exit 1
fi
echo "status $status after $seconds s"
