#!/bin/sh
# The compiler launcher of precompiled headers: removes the old result first. ccache would take its
# name for the content of the headers, and could return the result of another change of them.
# Usage: compile_headers.sh LAUNCHER... COMPILER ARGUMENT...
last=
for word; do
  case $last:$word in -o:*.gch) rm -f -- "$word" ;; esac
  last=$word
done
# If only a comment changes, the preprocessed text stays equal, but the compiler compares whole
# header files. In this mode, ccache compares whole files too.
export CCACHE_DEPEND=1
exec "$@"
