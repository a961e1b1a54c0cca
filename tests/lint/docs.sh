#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Man pages (mandoc -Tlint, warnings and worse), spelling of prose and comments (codespell), relative links
# of Markdown files and headings that they name, the tables of operator/reference/ against the code and the definitions of the
# kinds, the example job against its script.
. "$(dirname "$0")/lib.sh"
need mandoc
need codespell
while IFS= read -r f; do
    while IFS= read -r line; do finding "$line"; done < <(mandoc -Tlint -Wwarning "$f" 2>&1 | grep -v 'cannot open' || true)
done < <(files '*.1' '*.7' '*.8')
mapfile -t texts < <(files '*.md' '*.c' '*.h' '*.sh' '*.py' '*.mk' '*.js' '*.html' '*.1' '*.7' '*.8' '*.yaml' | grep -vE '/(testdata|corpus|golden)/')
if [ ${#texts[@]} -gt 0 ]; then
    while IFS= read -r line; do if [ -n "$line" ]; then finding "$line"; fi; done \
        < <(codespell -q 3 -L "$(tr '\n' ',' <"$LINT/words.ok")" "${texts[@]}" 2>&1 || true)
fi
anchors() { # FILE.md: its headings, as links name them
    sed -nE 's/^#+ +//p' "$1" | tr '[:upper:]' '[:lower:]' | sed -E 's/[^[:alnum:] _-]//g; s/ /-/g'
}
while IFS= read -r f; do
    while IFS= read -r target; do
        at=${target%%#*} page=$f
        [ -z "$at" ] || page=$(dirname "$f")/$at
        if [ ! -e "$page" ]; then
            finding "$f: link to $at, which does not exist"
        elif [[ $target == *#* && $page == *.md ]] && ! anchors "$page" | grep -qxF -- "${target#*#}"; then
            finding "$f: link to $target: there is no such heading"
        fi
    done < <(grep -oE '\]\([^)]+\)' "$f" | sed -E 's/^\]\(//; s/\)$//' | grep -vE '^(https?:|mailto:)' || true)
done < <(files '*.md')

# A page that follows an object through the code names functions that exist.
while IFS= read -r f; do
    while IFS= read -r name; do
        git grep -qE "\\b$name\\(" -- '*.c' '*.h' '*.py' || finding "$f: $name() is not in the code"
    done < <(grep -oE '[a-z_0-9]+\(\)' "$f" | tr -d '()' | sort -u || true)
done < <(files '*/JOURNEY.md' runtime/doc/allreduce.md)

# same PAGE MARK: the names on stdin are the first column, or its words, of the table between the comments of MARK
same() {
    local side name
    while IFS=$'\t' read -r side name; do
        case $side in
            code) finding "$1: $2: $name is in the code and not in the table" ;;
            *) finding "$1: $2: $name is in the table and not in the code" ;;
        esac
    done < <(comm -3 <(sort -u) <(sed -n "/^<!-- $2:/,/^<!-- end of $2/s/^| \(\`[^|]*\) |.*/\1/p" "$1" | grep -oE '[^\`, ]+' | sort -u) \
        | sed -e 's/^\t/table\t/; t' -e 's/^/code\t/')
}
reasons=operator/reference/horovodjob.md monitoring=operator/reference/monitoring.md
mapfile -t tell < <(files operator/apply.c operator/sync.c operator/core/hvd/hvd_status.c operator/core/hvd/hvd_stored.h \
    operator/core/hvd/hvd_verdict.c operator/core/hvd/hvd_verdict_text.c operator/core/hvd/hvd_loss.c operator/core/hvd/hvd_cause.c operator/core/hvd/hvd_live.c operator/core/hvd/hvd_goodput.c operator/core/progress.c)
if [ -f $reasons ] && [ ${#tell[@]} -gt 0 ]; then
    # each word there in CamelCase is a reason, but for types, states and kinds
    same $reasons reasons < <(grep -hoE '"[A-Z][A-Za-z0-9]*[a-z]"' "${tell[@]}" | tr -d '"' \
        | grep -vxE 'Created|Running|Suspended|Restarting|Stalled|Straggling|Succeeded|Failed|Finished|Pending|True|False|Worker|Background' || true)
fi
if [ -f $monitoring ] && [ -f operator/core/metrics.c ]; then
    same $monitoring metrics < <(grep -oE '"(hvd_operator|hvd_job|mpi_operator|process)_[a-z_]+"' operator/core/metrics.c | tr -d '"')
fi
mapfile -t logs < <(files 'operator/*.c' 'operator/kube/*.c')
if [ -f $monitoring ] && [ ${#logs[@]} -gt 0 ] && grep -q '^<!-- log:' $monitoring; then
    # keys of log_info("...", "key=%s key=\"%s\"", ..) and its kin; the first row are those of every line
    same $monitoring log < <(
        printf '%s\n' ts level program tag msg
        awk '/log_(debug|info|warn|error)\(/ {on = 1} on {print} /;$/ {on = 0}' "${logs[@]}" | grep -oE '[a-z_]+=[%\\a-z-]' | sed 's/=.*//'
    )
fi

if [ -f operator/api_page.py ]; then
    while IFS= read -r line; do finding "$line"; done < <(operator/api_page.py --check 2>&1)
fi

example=manifests/examples/horovodjob.yaml
if [ -f $example ] && ! manifests/examples/make-horovodjob.sh | cmp -s - $example; then
    finding "$example: is not what manifests/examples/make-horovodjob.sh writes"
fi
finish
