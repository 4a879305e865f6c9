#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The man page named by $1 renders without a word from groff, and has the words after it.
set -eu

if ! command -v man >/dev/null || ! command -v groff >/dev/null; then
    echo "skipped: man or groff is not installed"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

page=$1
shift
MANWIDTH=80 LC_ALL=C.UTF-8 man --warnings -P cat -l "$page" >"$dir/page" 2>"$dir/warnings"
sed 's/.\x08//g' "$dir/page" >"$dir/text" # bold is overstruck
if [ -s "$dir/warnings" ]; then
    cat "$dir/warnings"
    exit 1
fi
for word in "$@"; do
    if ! grep -q -e "$word" "$dir/text"; then
        echo "the page does not mention '$word':"
        cat "$dir/text"
        exit 1
    fi
done
