#!/usr/bin/env bash
# One node of a Ray cluster that is started by hand. Runs until Ctrl-C or SIGTERM, which end this node alone.
#
#     export RAY_AUTH_TOKEN=...                           # the same on every node
#     bash docs/launch/ray-start.sh head [ray start's options]
#     bash docs/launch/ray-start.sh worker HEAD [ray start's options]
#
# HEAD is the head node's host or address. RAY_PORT (6379) is the port that workers and the driver connect to.
set -euo pipefail

export RAY_AUTH_MODE=token
export RAY_USAGE_STATS_ENABLED=${RAY_USAGE_STATS_ENABLED:-0}
port=${RAY_PORT:-6379}

if [[ -z ${RAY_AUTH_TOKEN:-} ]]; then
    echo "RAY_AUTH_TOKEN is not set: make one on the head node, and give every node the same:" >&2
    echo "    python -c 'import secrets; print(secrets.token_hex(32))'" >&2
    exit 2
fi
case "${1:-}" in
head)
    shift
    exec ray start --head --port="$port" --block "$@"
    ;;
worker)
    if (($# < 2)); then
        echo "usage: $0 worker HEAD [ray start's options]" >&2
        exit 2
    fi
    head=$2
    shift 2
    exec ray start --address="$head:$port" --block "$@"
    ;;
*)
    echo "usage: $0 head|worker HEAD [ray start's options]" >&2
    exit 2
    ;;
esac
