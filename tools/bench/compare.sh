#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains the same networks with copse and with its peers, in turns, and prints the table for docs/performance.md;
# with -m evaluates them, or predicts with them.
#
#   python3 -m venv peers && peers/bin/pip install numpy torch tensorflow-cpu jax tinygrad
#   tools/bench/compare.sh [-c build/copse] [-p peers/bin/python] [-r ROUNDS] [-s SECONDS] [-n "NET:BATCH ..."]
#       [-m train|evaluate|predict] [PEER...]
#
# PEERS: pytorch, pytorch-channels-last, pytorch-compiled, pytorch-frozen (-m evaluate or predict: folded for inference),
# tensorflow, tensorflow-xla, tensorflow-keras (-m evaluate or predict: by the model's own methods), jax, tinygrad
# (default: pytorch, tensorflow, jax, tinygrad; the compiled ones take minutes to start). Endings add up:
# pytorch-frozen-channels-last. A peer that is not installed or fails is named and left out. JSON lines go to
# compare.jsonl beside where you stand; the table to stdout.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
copse=build/copse python=python3 rounds=5 seconds=5 nets="cifar32:256 mlp:32" mode=train
while getopts c:p:r:s:n:m: option; do
    case $option in
    c) copse=$OPTARG ;;
    p) python=$OPTARG ;;
    r) rounds=$OPTARG ;;
    s) seconds=$OPTARG ;;
    n) nets=$OPTARG ;;
    m) mode=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- pytorch tensorflow jax tinygrad
[ -x "$copse" ] || { echo "compare.sh: $copse is no program; build it or name it with -c" >&2; exit 2; }

# The allocator as it serves PyTorch best: large blocks are kept, not given back and zeroed again.
kept="MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=4294967296 MALLOC_TOP_PAD_=268435456"
lines=$PWD/compare.jsonl
: >"$lines"

# run NAME COMMAND...: its JSON line, or a word about why there is none.
run() {
    name=$1
    shift
    if ! timeout 600 "$@" >peer.out 2>peer.err; then
        echo "compare.sh: $name left out: $(grep -v '^ *$' peer.err | tail -1)" >&2
        return 0
    fi
    grep '^{' peer.out >>"$lines" || echo "compare.sh: $name printed no result" >&2
}

for net in $nets; do
    round=0
    while [ "$round" -lt "$rounds" ]; do
        round=$((round + 1))
        common="--net ${net%:*} --batch ${net#*:} --seconds $seconds --mode $mode"
        # shellcheck disable=SC2086
        run copse python3 "$here/peers/copse_step.py" --copse "$copse" $common
        for peer in "$@"; do
            flags="" script=$peer
            while :; do
                case $script in
                *-channels-last) flags="$flags --channels-last" script=${script%-channels-last} ;;
                *-compiled) flags="$flags --compile" script=${script%-compiled} ;;
                *-frozen) flags="$flags --frozen" script=${script%-frozen} ;;
                *-keras) flags="$flags --keras" script=${script%-keras} ;;
                *-xla) flags="$flags --xla" script=${script%-xla} ;;
                *) break ;;
                esac
            done
            # shellcheck disable=SC2086
            run "$peer" env $kept "$python" "$here/peers/${script}_step.py" $flags $common
        done
        echo "compare.sh: $net, round $round of $rounds done" >&2
    done
done
rm -f peer.out peer.err
python3 "$here/table.py" <"$lines"
