#!/usr/bin/env bash
# Build the package into dist/ and try the wheel as a user would. A tag has to name the version.
#   build.sh [v1.2.0]
set -euo pipefail

environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
python3 -m venv "$environment"
"$environment/bin/pip" install --quiet build==1.3.0 twine==6.2.0
rm -rf dist
"$environment/bin/python" -m build --outdir dist .
"$environment/bin/twine" check --strict dist/*

"$environment/bin/pip" install --quiet dist/*.whl
version=$("$environment/bin/kindlm" --version)
if [ $# -gt 0 ] && [ "${version##* }" != "${1#v}" ]; then
  echo "The tag is $1, but pyproject.toml has version ${version##* }." >&2
  exit 1
fi
"$environment/bin/kindlm" demo "$environment/demo"
