#!/bin/sh
# Says which of the tools that `make setup` needs are missing, and how to get them.
# With --python it prints the first Python that is new enough instead.
set -eu

find_python() {
	for name in python3 python3.14 python3.13 python3.12 python3.11; do
		if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
			command -v "$name"
			return 0
		fi
	done
	return 1
}

# A Go from 1.21 on fetches the toolchain that go.mod asks for, unless told not to.
go_is_new_enough() {
	minor=$(cd / && go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
	test -n "$minor" || return 1
	test "$minor" -ge 26 || { test "$minor" -ge 21 && test "$(go env GOTOOLCHAIN)" = auto; }
}

if [ "${1:-}" = --python ]; then
	find_python
	exit
fi

missing=0
report() {
	echo "[setup] missing: $1. $2" >&2
	missing=1
}
python=$(find_python) || report "Python 3.11 or newer" "Debian: apt install python3 python3-venv; macOS: brew install python"
if [ -n "$python" ] && ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
	report "Python's venv module" "Debian: apt install python3-venv"
fi
go_is_new_enough || report "Go 1.26 or newer" "macOS: brew install go; otherwise https://go.dev/dl (builds the test control plane)"
exit $missing
