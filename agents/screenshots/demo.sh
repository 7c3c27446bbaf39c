#!/bin/sh
# The demo on a copy of the files: demo.sh COUNTERSIGN SCRATCH_FOLDER
# A run that an earlier demo left open goes on; otherwise the demo begins with a fresh copy.
set -eu
countersign=$1
scratch=$2
here=$(cd "$(dirname "$0")" && pwd)

# is_open reports whether the earlier demo's run waits for a person or was interrupted.
is_open() {
  [ -d "$scratch/home" ] || return 1
  for status in waiting running; do
    case $("$countersign" runs --home "$scratch/home" --status "$status") in
      r[a-z2-7]*) return 0 ;; # a line of the list begins with a run's id
    esac
  done
  return 1
}

if is_open; then
  echo "The demo goes on with the run that was left open, in $scratch/inbox:"
else
  rm -rf "$scratch"
  mkdir -p "$scratch"
  cp -R "$here/inbox" "$scratch/inbox"
  echo "A folder of notes and screenshots, copied to $scratch/inbox:"
fi
ls "$scratch/inbox"
echo
command -v tesseract >/dev/null 2>&1 ||
  echo "tesseract is not installed, so pictures stay as they are (Debian: apt-get install tesseract-ocr)."

if [ -t 0 ] && [ -t 2 ]; then
  set --
else
  echo "There is no terminal to ask on, so the demo approves every move by --yes."
  set -- --yes
fi
code=0
"$countersign" run "$here" --home "$scratch/home" --dir "$scratch/inbox" --key demo "$@" \
  --message "Look through my notes and screenshots, find out what each is about, and rename it." || code=$?
echo
case $code in
  0) echo "The folder now:" ;;
  3) echo "The run waits for a decision. The next \`make demo\` goes on with it. The folder until then:" ;;
  *) exit "$code" ;;
esac
ls "$scratch/inbox"
