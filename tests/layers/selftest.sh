#!/bin/sh
# selftest.sh SOURCE_TREE SCRATCH: tools/check_layers allows what the table allows and names what it forbids.
set -eu
source=$1 tree=$2

# fresh: a tree with the real table, the folders it names, and one header in each place that the cases below include.
fresh() {
    rm -rf "$tree"
    mkdir -p "$tree/docs"
    cp "$source/docs/architecture.md" "$tree/docs/"
    # shellcheck disable=SC2046 # the rooms' names hold no spaces
    (cd "$tree" && mkdir -p $(sed -n 's/^| \([a-z][a-z/]*\) |.*/\1/p' docs/architecture.md | grep -v '^room$'))
    mkdir -p "$tree/src/planner/place"
    for header in include/berth/status.h src/base/base.h src/device/device.h src/device/cuda.h src/core/stats.h \
        src/wrap/tracking.h src/planner/place/fit.h; do
        echo '/* empty */' >"$tree/$header"
    done
}

# allowed FILE INCLUDE
allowed() {
    fresh
    echo "#include $2" >"$tree/$1"
    "$source/tools/check_layers" "$tree" >/dev/null || { echo "refused: $1 including $2" >&2; exit 1; }
}

# forbidden FILE INCLUDE WORDS
forbidden() {
    fresh
    echo "#include $2" >"$tree/$1"
    if said=$("$source/tools/check_layers" "$tree" 2>&1); then
        echo "not noticed: $1 including $2" >&2
        exit 1
    fi
    case $said in
    *"$1:1: "*"$3"*) ;;
    *) echo "noticed $1 including $2, but said: $said" >&2; exit 1 ;;
    esac
}

allowed src/core/a.c '"base/base.h"'
allowed src/core/a.c '"berth/status.h"'
allowed src/core/a.c '"device/device.h"'
allowed src/wrap/a.c '"core/stats.h"'
allowed src/device/cuda.c '"device/cuda.h"'
allowed src/device/cuda_stream.c '"cuda.h"'
allowed src/device/opencl.c '"device/device.h"'
allowed src/planner/place/a.c '<stdlib.h>'
allowed src/plan/a.c '"planner/place/fit.h"'
allowed bindings/a.cpp '<berth/status.h>'

forbidden src/base/a.c '"core/stats.h"' 'src/base does not see src/core'
forbidden src/core/a.c '"wrap/tracking.h"' 'src/core does not see src/wrap'
forbidden src/core/a.c '"../wrap/tracking.h"' 'src/core does not see src/wrap'
forbidden src/wrap/a.c '"device/device.h"' 'src/wrap does not see src/device'
forbidden src/plan/a.c '"core/stats.h"' 'src/plan does not see src/core'
forbidden src/planner/place/a.c '"core/stats.h"' 'src/planner does not see src/core'
forbidden src/planner/place/a.c '<pthread.h>' '<pthread.h>'
forbidden src/device/opencl.c '"device/cuda.h"' 'sibling'
forbidden include/berth/a.h '"base/base.h"' 'include/berth does not see src/base'
forbidden bindings/a.cpp '"base/base.h"' 'bindings does not see src/base'
forbidden cli/a.c '"core/stats.h"' 'cli does not see src/core'
forbidden src/core/a.c '"nowhere.h"' 'nowhere'
fresh
rmdir "$tree/src/wait"
if said=$("$source/tools/check_layers" "$tree" 2>&1); then
    echo "a room without a folder was not noticed" >&2
    exit 1
fi
case $said in
*src/wait*) ;;
*) echo "a room without a folder: said $said" >&2; exit 1 ;;
esac
echo "23 cases"
