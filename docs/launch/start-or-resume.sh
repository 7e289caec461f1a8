#!/usr/bin/env bash
# Start the run NAME under DIR, or continue it where it has begun: one command for the first try and every later one.
#
#     bash docs/launch/start-or-resume.sh DIR NAME [conf=NAME] [key=value ...]
#
# DIR is a directory or a URI (s3://bucket/sweeps). A run that is finished has nothing to do and ends with 0.
set -euo pipefail

if (($# < 2)) || [[ "$1 $2" == *=* ]]; then
    echo "usage: $0 DIR NAME [conf=NAME] [key=value ...]" >&2
    exit 2
fi
dir=$1 name=$2
shift 2

# status ends with 2 where there is no such run; with 0 or 1 there is one.
code=0
python -m orchestrator status "$name" --dir "$dir" >/dev/null 2>&1 || code=$?
if ((code == 2)); then
    run="run.name=$name"
else
    run="resume=$name"
fi
exec python -m orchestrator "$@" "run.dir=$dir" "$run"
