#!/usr/bin/env bash
# What steps.sh promises, with programs that stand in for tests and for compute-sanitizer: no card.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
expect() { # expect WHAT FILE PATTERN
  if ! grep -q "$3" "$2"; then
    echo "FAILED: $1: no '$3' in:" && cat "$2" && bad=1
  fi
}

cat >"$work/tests" <<'END'
#!/usr/bin/env bash
echo '[       OK ] A.b (1 ms)'
echo '[  FAILED  ] A.c (1 ms)'
echo '[  FAILED  ] A.c'
[ "${1:-}" != hang ] || exec sleep 60
exit 1
END
cat >"$work/compute-sanitizer" <<'END'
#!/usr/bin/env bash
if [ "$2" = refused ]; then echo '========= Error: no permission' && exit 1; fi
echo '[ RUN      ] A.b'
exit 99
END
chmod +x "$work/tests" "$work/compute-sanitizer"
cat >"$work/part" <<'END'
. "$HERE/steps.sh"
steps_begin "a part"
for name in "$@"; do
  case $name in
    ends) count ends 30 "$WORK/tests" ;;
    hangs) count hangs 6 "$WORK/tests" hang ;;
    breaks) count breaks 30 false ;;
    refused) sanitize refused 30 refused '*' "$WORK/tests" ;;
    found) sanitize found 30 memcheck '*' "$WORK/tests" ;;
  esac
done
steps_end
END
export HERE=$here WORK=$work
part() { # part NAME SECONDS STEP...
  local name=$1 seconds=$2
  shift 2
  OUT=$work/$name BLEND_PART_SECONDS=$seconds PATH=$work:$PATH bash "$work/part" "$@" >"$work/$name.out" 2>&1
}

part counted 100 ends hangs breaks refused found
expect "tests by their own count" "$work/counted/steps.txt" '^ends: 1 passed, 1 failed$'
expect "a time-out keeps what ended" "$work/counted/steps.txt" '^hangs: 1 tests in its time'
expect "a program that breaks off" "$work/counted/steps.txt" '^breaks: 0 passed, 1 failed$'
expect "a sanitizer that is refused" "$work/counted/steps.txt" '^refused: skipped'
expect "all together" "$work/counted/steps.txt" '^2 passed, 4 failed, 1 skipped$'
expect "the log of a step" "$work/counted/hangs.log" 'A.b'

part short 3 ends
expect "no step beyond the part's limit" "$work/short/steps.txt" '^ends: left out'

# Everything ended at once, as by whoever owns the machine.
setsid bash -c "$(declare -f part); work=$work; part killed 100 ends hangs" &
pid=$!
for _ in $(seq 100); do
  [ -e "$work/killed/hangs.log" ] && grep -q 'A.c$' "$work/killed/hangs.log" && break
  sleep 0.1
done
pkill -KILL -s "$pid"
expect "what ended before a kill" "$work/killed/steps.txt" '^ends: 1 passed, 1 failed$'
expect "what was on its way" "$work/killed/steps.txt" '^hangs: begun$'
expect "its log so far" "$work/killed/hangs.log" 'A.b'
exit $bad
