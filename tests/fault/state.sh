# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# same_state A B: two checkpoints agree in all but the length of a log (whose lines tell times), the staging path (which is
# measured at each start, and changes no bit) and the hash over them.
same_state() {
    for one in "$1" "$2"; do
        [ -s "$one" ] || return 1
    done
    [ "$(notes_of "$1")" = "$(notes_of "$2")" ] && [ "$(tensors_of "$1")" = "$(tensors_of "$2")" ]
}

header_of() {
    od -An -tu8 -N8 "$1" | tr -d ' '
}

notes_of() {
    tail -c +9 "$1" | head -c "$(header_of "$1")" |
        sed 's/"copse.log_bytes":"[0-9]*"//; s/"copse.hash":"[0-9a-f]*"//; s/\\"staging\\": \\"[a-z]*\\"//g' | tr -d ' '
}

tensors_of() {
    tail -c +$((9 + $(header_of "$1"))) "$1" | cksum
}
