# SPDX-License-Identifier: Apache-2.0
# bash completion of kubectl-hvd called by its own name; "kubectl hvd" is completed by kubectl itself, which
# calls kubectl_complete-hvd.
_kubectl_hvd() {
    local word
    COMPREPLY=()
    while IFS= read -r word; do
        case $word in
            :0) compopt -o default ;;
            :*) ;;
            *) COMPREPLY+=("${word%%$'\t'*}") ;;
        esac
    done < <(kubectl-hvd __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _kubectl_hvd kubectl-hvd
