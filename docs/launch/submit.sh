#!/usr/bin/env bash
# Run a sweep as a Ray job on a cluster that is up. This code is sent along; the driver runs on the head node.
#
#     export RAY_API_SERVER_ADDRESS=http://HEAD:8265 RAY_AUTH_TOKEN=...
#     bash docs/launch/submit.sh DIR NAME [conf=NAME] [key=value ...]
#
# DIR is where the head node writes: an absolute path there, or a URI. The same command again continues the run.
# Ends with 0 where the job has succeeded: everything was measured.
set -euo pipefail

if (($# < 2)) || [[ "$1 $2" == *=* ]]; then
    echo "usage: $0 DIR NAME [conf=NAME] [key=value ...]" >&2
    exit 2
fi
if [[ $1 != /* && $1 != *://* ]]; then
    echo "$1: give an absolute path on the head node, or a URI: a job's own directory is deleted with it" >&2
    exit 2
fi
export RAY_AUTH_MODE=token
: "${RAY_AUTH_TOKEN:?must be the token that the cluster was started with}"
: "${RAY_API_SERVER_ADDRESS:?must be the job server, for example http://10.0.0.1:8265}"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# What .gitignore names stays here anyway. `ray job stop` waits 60 s for the driver to rank what it has: 3 are too few.
environment='{
    "excludes": ["/tests", "/benchmarks", "/results", "/docs/*.md"],
    "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "60"}
}'
exec ray job submit --working-dir "$root" --runtime-env-json "$environment" -- \
    bash docs/launch/start-or-resume.sh "$@"
