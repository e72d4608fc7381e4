#!/usr/bin/env bash
# run.sh test|lint|oracle DIR|soak: the parts of `make test`, their minutes, their count, and what they leave behind.
# The parts run in a mount and a PID namespace of their own: what they leave is seen there, named, and gone with it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:?usage: run.sh test|lint|oracle DIR|soak}
shift
export PATH="$PATH:/usr/sbin:/sbin"
deny=()
[ -n "${CI:-}" ] && deny=(-D warnings)

lint() {
    cargo fmt --all --check && cargo clippy --quiet --workspace --all-targets -- "${deny[@]}"
}

# --- entering namespaces of our own -------------------------------------------------------------------------------

enter() {
    [ "${ROADSTEAD_RUN_INSIDE:-}" = 1 ] && return
    cargo fetch --locked --quiet || exit 1
    local user=()
    [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
    ROADSTEAD_RUN_INSIDE=1 exec unshare "${user[@]}" --mount --pid --fork --mount-proc --kill-child \
        --propagation private tests/run.sh "$what" "$@"
}

state=
prepare() {
    state=$(mktemp -d) || exit 1
    trap 'rm -rf "$state"' EXIT
    export ROADSTEAD_SKIPS="$state/skips" CARGO_NET_OFFLINE=true
    : >"$ROADSTEAD_SKIPS"
    : >"$state/minutes"
    # names made by `ip netns add` in these tests stay among themselves
    mkdir -p /run/netns 2>/dev/null && mount -t tmpfs roadstead-tests /run/netns
    mounts >"$state/mounts"
}

mounts() { awk '{ print $5 }' /proc/self/mountinfo | sort; }

# --- parts --------------------------------------------------------------------------------------------------------

passed=0 failed=0 skipped=0

# part NAME COMMAND…: runs it, keeps its time, counts its tests (or itself, where it prints no count)
part() {
    local name=$1 log began seconds status
    shift
    log="$state/log"
    printf '\n== %s\n' "$name"
    began=$(date +%s)
    "$@" </dev/null 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    seconds=$(($(date +%s) - began))
    printf '%6.1f  %s\n' "$(awk "BEGIN { print $seconds / 60 }")" "$name" >>"$state/minutes"
    local good bad
    good=$(sum "$log" passed)
    bad=$(sum "$log" failed)
    if [ "$((good + bad))" -eq 0 ]; then
        if [ "$status" -eq 0 ]; then good=1; else bad=1; fi
    elif [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
    fi
    passed=$((passed + good))
    failed=$((failed + bad))
    [ "$bad" -eq 0 ] || echo "FAILED: $name"
    [ "$bad" -eq 0 ]
}

# Adds up the numbers before a word in lines like "test result: ok. 3 passed; 0 failed" or "3 passed, 0 failed"
sum() {
    sed -nE "s/^(test result: .*[^0-9]|)([0-9]+) passed[;,] ([0-9]+) failed.*/passed \2\nfailed \3/p" "$1" |
        awk -v word="$2" '$1 == word { total += $2 } END { print total + 0 }'
}

# Builds every test once and lists `manifest-folder executable`
build_tests() {
    cargo build --workspace --quiet || return 1
    cargo test --workspace --no-run --message-format=json >"$state/artifacts.json" || return 1
    sed -nE 's/.*"manifest_path":"([^"]*)\/Cargo\.toml".*"executable":"([^"]*)".*/\1 \2/p' "$state/artifacts.json" |
        grep -v 'custom-build' >"$state/executables"
}

# run_tests [-v] PATTERN: the test programs whose folder matches (or, with -v, doesn't)
run_tests() {
    local status=0 folder program
    while read -r folder program; do
        echo "-- ${program##*/}"
        (cd "$folder" && timeout 900 "$program" --quiet) </dev/null || status=1
    done < <(grep -E "$@" "$state/executables" | awk '$2 ~ "/deps/"')
    return "$status"
}

fuzz() {
    ROADSTEAD_FUZZ=$1 cargo test --quiet --profile fuzz -p speaker-bgp -p speaker-l2 fuzz -- --nocapture
}

oracle() {
    cargo run --quiet --package oracle -- "$1"
}

demo() { timeout 300 target/debug/roadstead demo --once; }

# --- after the parts ----------------------------------------------------------------------------------------------

# Each skip must be listed in tests/skips.toml, with a probe that fails here
judge_skips() {
    local name why probe
    while IFS=: read -r name why; do
        skipped=$((skipped + 1))
        echo "SKIP $name:$why"
        probe=$(awk -v name="[$name]" '$0 == name { found = 1; next } /^\[/ { found = 0 }
            found && sub(/^probe = "/, "") { sub(/"$/, ""); print }' tests/skips.toml)
        if [ -z "$probe" ]; then
            echo "FAILED: $name is skipped but not listed in tests/skips.toml"
            failed=$((failed + 1))
        elif bash -c "$probe" >/dev/null 2>&1; then
            echo "FAILED: $name is skipped, but this machine has it: $probe"
            failed=$((failed + 1))
        fi
    done < <(sort -u "$ROADSTEAD_SKIPS")
}

# Nothing may be left: processes of this PID namespace but ours, names of namespaces, mounts
judge_leftovers() {
    local left=
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        left=$(leftovers)
        [ -z "$left" ] && break
        sleep 0.5
    done
    if [ -n "$left" ]; then
        printf 'FAILED: left behind:\n%s\n' "$left"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
}

leftovers() {
    local stat pid command status
    for stat in /proc/[0-9]*/stat; do
        read -r pid command status _ <"$stat" 2>/dev/null || continue
        [ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ] || [ "$status" = Z ] || echo "process $pid $command"
    done
    ls /run/netns 2>/dev/null | sed 's/^/network namespace /'
    mounts | comm -13 "$state/mounts" - | sed 's/^/mount /'
}

finish() {
    judge_skips
    judge_leftovers
    printf '\nminutes by part\n'
    cat "$state/minutes"
    awk '{ total += $1 } END { printf "%6.1f  together\n\n", total }' "$state/minutes"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}

case $what in
lint)
    lint
    exit
    ;;
test)
    enter
    prepare
    part "lint" lint
    if part "build (debug)" build_tests; then
        part "tidy" run_tests 'tests/tidy '
        part "unit tests, laws, cases" run_tests -v 'tests/(tidy|oracle|e2e|conformance[^ ]*) '
        part "documentation examples" cargo test --quiet --workspace --doc
        part "namespaces: conformance" run_tests 'tests/conformance[^ ]* '
        part "namespaces: packet oracle, runner" run_tests 'tests/oracle '
        part "namespaces: packet oracle, replay" oracle tests/oracle/proxier
        part "namespaces: end to end" run_tests 'tests/e2e '
        part "demo --once" demo
    fi
    part "10 million mutated messages and frames (fuzz profile)" fuzz 10000000
    finish
    ;;
oracle)
    enter "$@"
    prepare
    part "packet oracle" oracle "${1:?usage: run.sh oracle DIR}"
    finish
    ;;
soak)
    enter
    prepare
    part "200 million mutated messages and frames (fuzz profile)" fuzz 200000000
    part "build (debug)" build_tests
    for round in 1 2 3 4 5 6 7 8 9 10; do part "demo --once, round $round" demo; done
    finish
    ;;
*)
    echo "run.sh: no such part: $what (test, lint, oracle DIR, soak)" >&2
    exit 2
    ;;
esac
