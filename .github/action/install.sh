#!/usr/bin/env bash
# Install kindlm in an environment of its own, unless the job has one on its PATH already.
# Agents in Python need their packages beside kindlm: such a job installs kindlm with them.
set -euo pipefail

if command -v kindlm >/dev/null; then
  echo "Using $(kindlm --version), found on the PATH."
  exit
fi
environment=$RUNNER_TEMP/kindlm-environment
python3 -m venv "$environment"
"$environment/bin/pip" install --quiet "${KINDLM_VERSION:-$ACTION_PATH}"
echo "$environment/bin" >>"$GITHUB_PATH"
"$environment/bin/kindlm" --version
