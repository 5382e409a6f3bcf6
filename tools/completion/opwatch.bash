# Tables: _opwatch_verbs by command, _opwatch_options by command, _opwatch_values by "command --option",
# "command 1" (first operand) and "command +" (further operands). A value is a kind and words.

_opwatch_keep() { # keeps the lines of standard input that start with the typed word
    local line
    while IFS= read -r line; do
        [[ $line == "$typed"* ]] || continue
        printf -v line %q "$line"
        COMPREPLY+=("$line")
    done
}

_opwatch_devices() {
    local paths=("${_opwatch_blocks:-/sys/class/block}"/*)
    local names=("${paths[@]##*/}")
    [[ $typed == /* ]] && { _opwatch_files -f; return; }
    mapfile -t COMPREPLY < <(compgen -W "${names[*]//!//}" -- "$typed")
}

_opwatch_files() { # -f: files, -d: folders
    compopt -o filenames 2>/dev/null
    local line
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen "$1" -- "$typed")
}

_opwatch_mounts() {
    local device point rest
    while read -r device point rest; do
        [[ $device == /dev/* ]] && printf '%b\n' "$point"
    done </proc/self/mounts | sort -u
}

_opwatch_fields() {
    local before=""
    [[ $typed == *,* ]] && before="${typed%,*},"
    compopt -o nospace 2>/dev/null
    local line
    while IFS= read -r line; do
        [[ $before$line == "$typed"* ]] && COMPREPLY+=("$before$line")
    done < <("$program" completion fields "${operands[@]}" 2>/dev/null)
}

_opwatch_reply() { # completes a value: its kind, then its words
    local kind="$1" line
    shift
    case "$kind" in
        words) mapfile -t COMPREPLY < <(compgen -W "$*" -- "$typed") ;;
        device) _opwatch_devices ;;
        file)
            _opwatch_files -f
            while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -W "$*" -- "$typed")
            ;;
        folder) _opwatch_files -d ;;
        mount) _opwatch_keep < <(_opwatch_mounts) ;;
        phase) _opwatch_keep < <("$program" completion phases "${operands[@]}" 2>/dev/null) ;;
        field) _opwatch_fields ;;
    esac
}

_opwatch_program() { # completes the command after --, which is at this place
    if declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif ((COMP_CWORD == $1)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$typed")
    else
        _opwatch_files -f
    fi
}

_opwatch() {
    local typed="${COMP_WORDS[COMP_CWORD]}" program="${COMP_WORDS[0]/#\~/$HOME}"
    local path="" option="" word index helps=0 operands=()
    COMPREPLY=()
    for ((index = 1; index < COMP_CWORD; index++)); do
        word="${COMP_WORDS[index]}"
        if [[ $word == -- ]]; then
            _opwatch_program $((index + 1))
            return
        elif [[ -n $option ]]; then
            [[ $word == = ]] || option=""
        elif [[ $word == -* ]]; then
            [[ -n ${_opwatch_values["${path:-watch} $word"]-} ]] && option="$word"
        elif [[ -z $path && ${#operands[@]} == 0 && $word == help ]]; then
            helps=1
        elif [[ ${#operands[@]} == 0 && " ${_opwatch_verbs[${path:-opwatch}]-} " == *" $word "* ]]; then
            path="${path:+$path }$word"
        else
            operands+=("${word//\\/}")
        fi
    done
    [[ $typed == = ]] && typed=""
    local key="${path:-watch}" verbs="${_opwatch_verbs[${path:-opwatch}]-}"
    if [[ -n $option ]]; then
        # shellcheck disable=SC2086
        _opwatch_reply ${_opwatch_values["$key $option"]}
    elif ((helps)); then
        mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$typed")
    elif [[ $typed == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${_opwatch_options[$key]-}" -- "$typed")
    else
        if ((${#operands[@]} == 0)) && [[ -n $verbs ]]; then
            [[ -n $path ]] || verbs+=" help"
            mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$typed")
        fi
        local place=$((${#operands[@]} + 1))
        # shellcheck disable=SC2086
        ((${#COMPREPLY[@]})) || _opwatch_reply ${_opwatch_values["$key $place"]-${_opwatch_values["$key +"]-none}}
    fi
}

complete -F _opwatch opwatch
