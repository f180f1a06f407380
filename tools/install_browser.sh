#!/bin/sh
# Installs the Chromium that the tests of the report's page open it in, on a Debian machine that has none. Needs root.
set -eu

for name in chromium chromium-browser google-chrome google-chrome-stable; do
	if command -v "$name" >/dev/null; then
		exit 0
	fi
done
echo "[setup] installing chromium" >&2
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null
