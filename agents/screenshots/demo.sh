#!/bin/sh
# The demo on a fresh copy of the files: demo.sh COUNTERSIGN SCRATCH_FOLDER
set -eu
countersign=$1
scratch=$2
here=$(cd "$(dirname "$0")" && pwd)

rm -rf "$scratch"
mkdir -p "$scratch"
cp -R "$here/inbox" "$scratch/inbox"

echo "A folder of notes and screenshots, copied to $scratch/inbox:"
ls "$scratch/inbox"
echo
command -v tesseract >/dev/null 2>&1 ||
  echo "tesseract is not installed, so pictures stay as they are (Debian: apt-get install tesseract-ocr)."

if [ -t 0 ] && [ -t 1 ]; then
  set --
else
  echo "There is no terminal to ask on, so the demo approves every move by --yes."
  set -- --yes
fi
"$countersign" run "$here" --home "$scratch/home" --dir "$scratch/inbox" "$@" \
  --message "Look through my notes and screenshots, find out what each is about, and rename it."
echo
echo "The folder now:"
ls "$scratch/inbox"
