# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Completion for hvd-agent: what it does and takes comes from the usage lines of its --help.
_hvd_agent()
{
    local usage cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    usage=$("${COMP_WORDS[0]}" --help 2>/dev/null | sed -n 's/.*hvd-agent //; /^$/q; p')
    if [ "$COMP_CWORD" = 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(sed 's/^\([a-z]*\) .*/\1/; s/|//' <<<"$usage")" -- "$cur")
        return 0
    fi
    usage=$(grep "^${COMP_WORDS[1]} " <<<"$usage")
    case $usage in
        *"$prev FILE"*) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
        *"[--] command"*) mapfile -t COMPREPLY < <(compgen -c -W "$(grep -oE -- '--[a-z-]+' <<<"$usage")" -- "$cur") ;;
        install* | examine*) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
        *"$prev "[A-Z]*) ;; # a value that is nobody's to guess
        *) mapfile -t COMPREPLY < <(compgen -W "$(grep -oE -- '--[a-z-]+' <<<"$usage")" -- "$cur") ;;
    esac
}

complete -F _hvd_agent hvd-agent
