#!/usr/bin/env bash
# A sweep on whole Slurm nodes: one Ray cluster for the job, the driver on its first node. From the checkout, with the
# environment active:
#
#     sbatch docs/launch/slurm.sh conf=cluster [key=value ...]
#
# Before its time is up the job stops, ranks what it has and queues itself again; then it continues. To end it for good,
# keeping what is measured:  scancel --batch --signal=INT JOBID
#
#SBATCH --job-name=gemm-sweep
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=8
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=gemm-sweep-%j.log
set -uo pipefail

results=${RESULTS:-$PWD/results} # only the driver writes there: a directory that the first node sees, or a URI
run=${RUN:-slurm-$SLURM_JOB_ID}  # the job keeps its number when it is queued again
port=${RAY_PORT:-6379}

# Ray compares this address with those of its own interfaces to find the head; a loopback address would not do.
address=${HEAD_ADDRESS:-$(hostname --ip-address | tr ' ' '\n' | grep --max-count=1 '\.')}
[[ $address == 127.* ]] && address=$(hostname --all-ip-addresses | cut -d ' ' -f 1)

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_TMPDIR=${RAY_TMPDIR:-/tmp/ray-$SLURM_JOB_ID}
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300 # seconds until every node must be there; Ray's 30 are few

# On the head. Its own process id and exit code are noted: the step's say nothing about the sweep.
# shellcheck disable=SC2016
driver='
    state=$1 address=$2
    shift 2
    RAY_ADDRESS=$address bash docs/launch/start-or-resume.sh "$@" &
    echo $! >"$state/pid"
    wait $!
    echo $? >"$state/code"
'

stop() {
    notice=$1
    # The driver alone, once it is there: a signal to the whole step would end Ray beneath it.
    if [[ -s $state/pid ]]; then
        kill -TERM "$(<"$state/pid")"
    elif [[ -n $step ]]; then
        kill -TERM "$step"
    fi
}
notice=none step=
trap 'stop requeue' TERM
trap 'stop end' INT

srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=1 --wait=15 \
    ray symmetric-run --address="$address:$port" --min-nodes="$SLURM_JOB_NUM_NODES" \
    --num-cpus="$SLURM_CPUS_PER_TASK" -- \
    bash -c "$driver" driver "$state" "$address:$port" "$results" "$run" "$@" &
step=$!
while kill -0 "$step" 2>/dev/null; do
    wait "$step" # a notice interrupts it
done

code=1 # no code: Ray did not start, which the log tells
[[ -s $state/code ]] && code=$(<"$state/code")
if [[ $notice == requeue && $code != 0 ]]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
