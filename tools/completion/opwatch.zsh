# Tables: _opwatch_verbs by command, _opwatch_options by command, _opwatch_values by "command --option",
# "command 1" (first operand) and "command +" (further operands). A value is a kind and words.

_opwatch_devices() {
    local -a names
    if [[ $PREFIX == /* ]]; then
        _files
    else
        names=(${_opwatch_blocks:-/sys/class/block}/*(N:t))
        compadd -a - names
    fi
}

_opwatch_mounts() {
    local line
    local -a points
    for line in "${(@f)$(</proc/self/mounts)}"; do
        [[ $line == /dev/* ]] && points+=("${(g::)${line#* }%% *}")
    done
    compadd -U -M 'r:|/=*' -a - points
}

_opwatch_reply() { # completes a value: its kind, then its words
    local kind="$1"
    local -a found
    shift
    case "$kind" in
        words) compadd - "$@" ;;
        device) _opwatch_devices ;;
        file) (($#)) && compadd - "$@"; _files ;;
        folder) _files -/ ;;
        mount) _opwatch_mounts ;;
        phase)
            found=("${(@f)$($program completion phases $operands 2>/dev/null)}")
            compadd -a - found
            ;;
        field)
            found=("${(@f)$($program completion fields $operands 2>/dev/null)}")
            compset -P '*,'
            compadd -q -S , -a - found
            ;;
    esac
}

_opwatch() {
    local program="${(Q)words[1]/#\~/$HOME}" at="" option="" word key
    local -a operands lines verbs
    integer place helps=0
    for ((place = 2; place < CURRENT; place++)); do
        word="${words[place]}"
        if [[ $word == -- ]]; then
            shift $place words
            ((CURRENT -= place))
            _normal
            return
        elif [[ -n $option ]]; then
            option=""
        elif [[ $word == -* ]]; then
            [[ -n ${_opwatch_values[${at:-watch} $word]-} ]] && option="$word"
        elif [[ -z $at && $#operands -eq 0 && $word == help ]]; then
            helps=1
        elif (($#operands == 0)) && [[ $'\n'${_opwatch_verbs[${at:-opwatch}]-} == *$'\n'"$word:"* ]]; then
            at="${at:+$at }$word"
        else
            operands+=("${(Q)word}")
        fi
    done
    key="${at:-watch}"
    verbs=("${(@f)${_opwatch_verbs[${at:-opwatch}]-}}")
    verbs=(${verbs:#})
    if [[ -z $option && $PREFIX == --*=* ]]; then
        option="${PREFIX%%=*}"
        compset -P '*='
    fi
    if [[ -n $option ]]; then
        _opwatch_reply ${=_opwatch_values[$key $option]-none}
    elif ((helps)); then
        _describe command verbs
    elif [[ $PREFIX == -* ]]; then
        lines=("${(@f)${_opwatch_options[$key]-}}")
        _describe -o option lines
    else
        [[ -n $at ]] || verbs+=('help:show the options of a command')
        local this="$key $(($#operands + 1))" further="$key +"
        (($#operands)) || [[ -z $_opwatch_verbs[${at:-opwatch}] ]] || _describe command verbs
        _opwatch_reply ${=${_opwatch_values[$this]:-${_opwatch_values[$further]:-none}}}
    fi
}

# zsh runs this file as the function when it is first needed; a shell may also source it.
if [[ $funcstack[1] == _opwatch ]]; then
    _opwatch "$@"
else
    compdef _opwatch opwatch
fi
