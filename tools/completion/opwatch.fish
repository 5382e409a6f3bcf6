# Tables: __opwatch_verbs and __opwatch_options print the lines of a command; __opwatch_values prints the kind
# of a value and its words, for "command --option", "command 1" (first operand) and "command +".

function __opwatch_list_devices
    set -l typed (commandline -ct)
    if string match -q '/*' -- $typed
        __fish_complete_path $typed
    else
        set -q _opwatch_blocks; or set -l _opwatch_blocks /sys/class/block
        path basename $_opwatch_blocks/* | string replace -a ! /
    end
end

function __opwatch_list_mounts
    while read -l device point rest
        string match -q '/dev/*' -- $device; and printf '%b\n' $point
    end </proc/self/mounts
end

function __opwatch_list_fields --argument-names program
    set -l before (string match -r '^.*,' -- (commandline -ct))
    $program completion fields $argv[2..] 2>/dev/null | string replace -r '^' -- "$before"
end

function __opwatch_list --argument-names program kind
    # Completes a value: its kind, the words, then the operands after --.
    set -l split (contains -i -- -- $argv)
    set -l words $argv[1..$split]
    set -e words[-1] words[1..2]
    set -l operands $argv[$split..]
    set -e operands[1]
    switch $kind
        case words
            printf '%s\n' $words
        case device
            __opwatch_list_devices
        case file
            set -q words[1]; and printf '%s\n' $words
            __fish_complete_path (commandline -ct)
        case folder
            __fish_complete_directories (commandline -ct) ''
        case mount
            __opwatch_list_mounts
        case phase
            $program completion phases $operands 2>/dev/null
        case field
            __opwatch_list_fields $program $operands
    end
end

function __opwatch_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l program (string replace -r '^~' $HOME -- $words[1])
    set -l at
    set -l option
    set -l operands
    set -l helps 0
    for place in (seq 2 (count $words))
        set -l word $words[$place]
        if test "$word" = --
            __fish_complete_subcommand --fcs-skip=$place
            return
        else if set -q option[1]
            set -e option
        else if string match -q -- '-*' $word
            set -q at[1]; and set -l key "$at"; or set -l key watch
            set -l values (__opwatch_values "$key $word")
            set -q values[1]; and set option $word
        else if test -z "$at$operands" -a "$word" = help
            set helps 1
        else if test -z "$operands"; and __opwatch_verbs "$at" | string match -q -r -- "^"(string escape --style=regex -- $word)"\t"
            set -a at $word
        else
            set -a operands $word
        end
    end
    set -q at[1]; and set -l key "$at"; or set -l key watch
    if set -q option[1]
        __opwatch_list $program (__opwatch_values "$key $option") -- $operands
    else if test $helps = 1
        __opwatch_verbs "$at"
    else if string match -q -- '--*=*' $typed
        set -l name (string split -m 1 = -- $typed)[1]
        __opwatch_list $program (__opwatch_values "$key $name") -- $operands | string replace -r '^' -- "$name="
    else if string match -q -- '-*' $typed
        __opwatch_options $key
    else
        if test -z "$operands"
            __opwatch_verbs "$at"
            set -q at[1]; or printf 'help\tshow the options of a command\n'
        end
        set -l values (__opwatch_values "$key "(math 1 + (count $operands)))
        set -q values[1]; or set values (__opwatch_values "$key +")
        set -q values[1]; and __opwatch_list $program $values -- $operands
    end
end

complete -c opwatch -f -a '(__opwatch_complete)'
