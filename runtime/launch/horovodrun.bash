# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Completion for horovodrun and perseusrun. Options and what they take come from --help of the program
# that is completed, so this file knows none of them.

# _horovodrun_options PROGRAM: fills takes[OPTION]="name of its value"
_horovodrun_options()
{
    local line names value name
    while IFS= read -r line; do
        [[ $line =~ ^\ \ (-[^\ ,]+(,\ -[^\ ,]+)*)(\ (.*))?$ ]] || continue
        names=${BASH_REMATCH[1]} value=${BASH_REMATCH[4]}
        for name in ${names//,/ }; do takes[$name]=$value; done
    done < <("$1" --help 2>/dev/null)
}

# _horovodrun_value VALUE CUR: completes what an option takes
_horovodrun_value()
{
    case $1 in
        FILE) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
        DIR) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$2") ;;
        COMMAND) mapfile -t COMPREPLY < <(compgen -c -f -- "$2") ;;
        HOST*) mapfile -t COMPREPLY < <(compgen -A hostname -- "$2") ;;
        NAME*) mapfile -t COMPREPLY < <(compgen -W "$(cd /sys/class/net 2>/dev/null && echo *)" -- "$2") ;;
        *\|*) mapfile -t COMPREPLY < <(compgen -W "${1//|/ }" -- "$2") ;;
    esac
}

_horovodrun()
{
    local -A takes=()
    local i=1 word value values cur=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    _horovodrun_options "${COMP_WORDS[0]}"
    while [ "$i" -lt "$COMP_CWORD" ]; do
        word=${COMP_WORDS[i]}
        i=$((i + 1))
        if [ "$word" = -- ] || [ "${word#-}" = "$word" ]; then # the command has begun
            [ "$word" = -- ] || i=$((i - 1))
            if declare -F _command_offset >/dev/null; then
                _command_offset "$i"
            elif [ "$i" = "$COMP_CWORD" ]; then
                mapfile -t COMPREPLY < <(compgen -c -- "$cur")
            else
                compopt -o filenames 2>/dev/null
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            fi
            return 0
        fi
        value=${takes[$word]-}
        [ "${COMP_WORDS[i]-}" != = ] || i=$((i + 1)) # readline splits --name=value in three
        for values in $value; do                   # "MIN MAX" are two
            if [ "$i" -ge "$COMP_CWORD" ]; then
                _horovodrun_value "$values" "${cur#=}"
                return 0
            fi
            i=$((i + 1))
        done
    done
    case $cur in
        -*) mapfile -t COMPREPLY < <(compgen -W "${!takes[*]}" -- "$cur") ;;
        *) mapfile -t COMPREPLY < <(compgen -c -- "$cur") ;;
    esac
}

complete -F _horovodrun horovodrun perseusrun
