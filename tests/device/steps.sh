# shellcheck shell=bash
# Sourced by tests/device/run and bench/device/run: steps of a part that has a limit of time.
#
# A card is at hand for minutes, and whoever holds the machine may end everything at once. So each step
# has a time-out and none goes beyond the part's limit; its output streams to the terminal and to
# OUT/NAME.log as it comes; OUT/steps.txt gets a line when a step begins and one when it ends, so that
# what was done can be told after a kill too.

steps_out=${OUT:-device-results}
part_seconds=${BLEND_PART_SECONDS:-470}
passed=0 failed=0 skipped=0

steps_begin() { # steps_begin TITLE
  mkdir -p "$steps_out"
  part_began=$SECONDS
  echo "# $1, $(date -u +%Y-%m-%dT%H:%M:%SZ)" >>"$steps_out/steps.txt"
}

note() { # note TEXT: to the terminal and to steps.txt
  echo "$1"
  echo "$1" >>"$steps_out/steps.txt"
}

# step NAME SECONDS COMMAND...: runs it for at most that time. Sets step_rc (124: the time-out) and
# step_log; 125: there was no time left, and it did not run.
step() {
  local name=$1 limit=$2 left=$((part_seconds - (SECONDS - part_began))) began=$SECONDS
  shift 2
  step_log=$steps_out/$name.log
  [ "$limit" -le "$left" ] || limit=$left
  if [ "$limit" -lt 5 ]; then
    step_rc=125
    note "$name: left out, the part's $part_seconds s are over"
    return
  fi
  echo "== $name (at most $limit s)"
  echo "$name: begun" >>"$steps_out/steps.txt"
  timeout -k 5 "$limit" "$@" 2>&1 | tee "$step_log"
  step_rc=${PIPESTATUS[0]}
  note "$name: ended with $step_rc after $((SECONDS - began)) s"
}

# count NAME SECONDS COMMAND...: a GoogleTest program, by the tests that have ended.
count() {
  step "$@"
  if [ "$step_rc" -eq 125 ]; then
    skipped=$((skipped + 1))
    return
  fi
  local ok bad
  ok=$(grep -c '^\[       OK \]' "$step_log")
  bad=$(grep -c '^\[  FAILED  \] .*ms)$' "$step_log")
  # It broke off by itself: the test that was running has failed.
  if [ "$step_rc" -ne 0 ] && [ "$step_rc" -ne 124 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  passed=$((passed + ok)) failed=$((failed + bad))
  [ "$step_rc" -ne 124 ] || note "$1: $ok tests in its time, the others were not reached"
  note "$1: $ok passed, $bad failed"
}

# sanitize NAME SECONDS TOOL FILTER PROGRAM: one test; a tool that the machine refuses is skipped.
sanitize() {
  local name=$1 limit=$2 tool=$3 filter=$4 program=$5
  if ! command -v compute-sanitizer >/dev/null; then
    note "$name: skipped, compute-sanitizer is not installed"
    skipped=$((skipped + 1))
    return
  fi
  step "$name" "$limit" compute-sanitizer --tool "$tool" --error-exitcode 99 "$program" \
    "--gtest_filter=$filter"
  if [ "$step_rc" -eq 0 ]; then
    passed=$((passed + 1))
  elif [ "$step_rc" -eq 125 ]; then
    skipped=$((skipped + 1))
  elif [ "$step_rc" -ne 99 ] && ! grep -q '^\[ RUN' "$step_log"; then
    note "$name: skipped, the machine refuses compute-sanitizer: $(grep -m 1 -i 'error' "$step_log")"
    skipped=$((skipped + 1))
  elif [ "$step_rc" -eq 124 ] && ! grep -q '========= .*\(ERROR\|Invalid\|hazard\)' "$step_log"; then
    note "$name: nothing was found in its time, $(grep -c '^\[       OK' "$step_log") tests ended"
    skipped=$((skipped + 1))
  else
    failed=$((failed + 1))
  fi
}

steps_end() { # the last line, and the part's exit status
  note "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
}
