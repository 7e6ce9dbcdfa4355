#!/bin/sh
# bench.sh SOURCE_TREE SCRATCH: bench/run merges the rounds of its peers, computes ratios and judges figures; the
# programs are fakes whose numbers we know.
set -eu
tree=$1 work=$2
rm -rf "$work"
mkdir -p "$work/topics/fake" "$work/build/bench"
fail() { printf '%s\n' "$*" >&2; exit 1; }

# A program that answers $NS for its one thread and half of that for two, as Google Benchmark writes it.
cat >"$work/build/bench/program" <<'END'
#!/bin/sh
cat <<JSON
{"context": {}, "benchmarks": [
 {"name": "it/pair/real_time/threads:1", "real_time": $NS, "cpu_time": $((NS / 5)), "time_unit": "ns"},
 {"name": "it/pair/real_time/threads:2", "real_time": $((NS / 2)), "cpu_time": $((NS / 10)), "time_unit": "ns"}]}
JSON
END
chmod +x "$work/build/bench/program"

# judge LIMIT [CLOCK]: runs with one figure that holds only if the limit is at least 1.5.
judge() {
    cat >"$work/topics/fake/bench.json" <<END
{"title": "a fake", "clock": "${2:-wall}", "baseline": "slow", "peers": [
  {"name": "slow", "program": "program", "variant": "it", "env": {"NS": "100"}},
  {"name": "slower", "program": "program", "variant": "it", "env": {"NS": "150"}},
  {"name": "absent", "program": "program", "variant": "it", "preload": "libnowhere.so.9"}],
 "figures": [
  {"peer": "slower", "case": "pair/threads:1", "against": "slow", "at_most_ratio": $1},
  {"peer": "slower", "case": "pair/threads:1", "against": "slow", "at_most_added_ns": 50},
  {"peer": "slow", "case": "pair/threads:2", "than_case": "pair/threads:1", "at_least_speedup": 2}]}
END
    code=0
    said=$("$tree/bench/run" --topics "$work/topics" --build "$work/build" --rounds 2 --check 2>&1) || code=$?
}

# says WORDS
says() {
    case $said in
    *"$1"*) ;;
    *) fail "it does not say '$1' but: $said" ;;
    esac
}

judge 1.5
[ "$code" -eq 0 ] || fail "figures that hold exit $code: $said"
says "150.0   1.50x"
says "left out: absent: libnowhere.so.9 is not installed"
says "+50.0 ns  met"
says "2.00 x  met"
says "noise: over 2 rounds the median lies 0% above the best"
judge 1.4
[ "$code" -eq 1 ] || fail "a figure that does not hold exits $code: $said"
says "NOT met"
judge 1.5 processor
says "30.0   1.50x"
says "+10.0 ns  met"
