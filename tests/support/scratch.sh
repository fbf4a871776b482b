# For scripts that make files: a folder `scratch`, which is removed at their end, and `fail TEXT`.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}
