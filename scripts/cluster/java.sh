#!/bin/sh
# Exits with 0 if there is a Java that Spark 4 runs on: 17 or newer.
command -v java >/dev/null 2>&1 || exit 1
version=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')
[ "${version:-0}" -ge 17 ]
