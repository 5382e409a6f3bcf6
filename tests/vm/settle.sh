#!/bin/sh
# Load modules, then wait until COUNT whole disks have appeared.
# usage: settle.sh COUNT [MODULE [PARAMETER...] [-- MODULE...]]...
set -eu

want=$1
shift

load() {
	# shellcheck disable=SC2086 # parameters contain no blanks
	[ -z "$1" ] || modprobe $1
}

line=''
for word; do
	if [ "$word" = -- ]; then
		load "$line"
		line=''
	else
		line="$line $word"
	fi
done
load "$line"

count() {
	seen=0
	for disk in /sys/block/nvme* /sys/block/sd* /sys/block/vd*; do
		[ -e "$disk/size" ] || continue
		read -r size <"$disk/size"
		read -r hidden <"$disk/hidden"
		[ "$size" -eq 0 ] || [ "$hidden" -eq 1 ] || seen=$((seen + 1))
	done
}

tries=1200
count
while [ "$seen" -lt "$want" ]; do
	tries=$((tries - 1))
	if [ "$tries" -eq 0 ]; then
		echo "settle: $seen of $want disks have appeared" >&2
		exit 1
	fi
	sleep 0.1
	count
done
