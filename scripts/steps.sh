# Runs checks one after the other, names the one that fails, and says at the end what each took; sourced, not run.

not_run=()
timings=()

# Usage: step NAME COMMAND...
step() {
    local name=$1 started=$SECONDS
    shift
    say "== $name"
    if ! "$@" </dev/null; then
        say "== FAILED: $name (after $((SECONDS - started)) s): $*"
        exit 1
    fi
    note_time "$name" "$started"
}

# Usage: note_time NAME START_SECONDS
note_time() {
    timings+=("$(printf '%5d s  %s' $((SECONDS - $2)) "$1")")
}

# Usage: slow_step NAME COMMAND...; left out with --fast.
slow_step() {
    if [ "$is_fast" = yes ]; then
        not_run+=("$1 (--fast)")
    else
        step "$@"
    fi
}

# Usage: tool_step COMPONENT NAME COMMAND...
# Debian's rustc-web comes without clippy; a missing tool is counted and shown, never passed over.
tool_step() {
    local component=$1 name=$2
    shift
    if cargo "${component#rust}" --version >/dev/null 2>&1; then
        step "$@"
    else
        not_run+=("$name (this Rust toolchain lacks $component; rustup component add $component)")
    fi
}

# Usage: read_fast COMMAND ARGUMENT...; sets is_fast, and refuses any argument but --fast.
read_fast() {
    local command=$1
    is_fast=no
    case ${2:-} in
        '') ;;
        --fast) is_fast=yes ;;
        *)
            say "edgefl: expected $command with no argument or --fast; found '$2'"
            exit 2
            ;;
    esac
}

show_steps() {
    printf '%s\n' "${timings[@]}" >&2
    if [ ${#not_run[@]} -gt 0 ]; then
        printf '   NOT RUN: %s\n' "${not_run[@]}" >&2
    fi
}
