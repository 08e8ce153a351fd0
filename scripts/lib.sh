# Makes the environment that scripts/demo and scripts/test run in; sourced, not run.
#
# Everything goes into the virtual environment (EDGEFL_VENV, default .venv) and target/. The one
# change outside is Debian's packages for what is missing, and only when run as root. What is up to
# date is left alone, so a second run starts at once.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=${EDGEFL_VENV:-$ROOT/.venv}
LEAST_PYTHON=3.11
LEAST_RUST=1.85

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "edgefl: $*"
    exit 4
}

# Usage: prepare demo|test
prepare() {
    local extra=$1
    case $VENV in /*) ;; *) VENV=$PWD/$VENV ;; esac
    # A path of the caller's would put other versions of our packages before the environment's.
    unset PYTHONPATH PYTHONHOME
    if ! is_installed "$extra" || ! is_core_built; then
        ensure_venv
        ensure_linker
        ensure_rust
        install_project "$extra"
    fi
    export VIRTUAL_ENV=$VENV
    export PATH=$VENV/bin:$PATH
}

# ------------------------------------------------------------ what is up to date

python_inputs() {
    printf '%s\n' "$ROOT"
    cat "$ROOT/pyproject.toml" "$ROOT/constraints.txt"
}

core_inputs() {
    cat "$ROOT/Cargo.toml" "$ROOT/Cargo.lock"
    find "$ROOT/rust" -type f \( -name '*.rs' -o -name '*.toml' \) -print0 | LC_ALL=C sort -z | xargs -0 cat
    # The built file itself: another build in this tree may have replaced it.
    cat "$ROOT"/edgefl/_native*.so 2>/dev/null || true
}

digest() {
    sha256sum | cut -d' ' -f1
}

# [test] includes [demo].
is_installed() {
    local wanted stamp
    [ -x "$VENV/bin/edgefl" ] && "$VENV/bin/python" -c '' 2>/dev/null || return 1
    wanted=$(python_inputs | digest)
    for stamp in "$VENV/edgefl-installed-test" "$VENV/edgefl-installed-$1"; do
        [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && return 0
    done
    return 1
}

is_core_built() {
    local stamp=$ROOT/target/edgefl-core-built
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(core_inputs | digest)" ]
}

# ------------------------------------------------------------ Python

find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
        if "$name" -c "import sys; sys.exit(sys.version_info < tuple(map(int, '$LEAST_PYTHON'.split('.'))))" 2>/dev/null; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

ensure_venv() {
    local python version
    if "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
        return 0
    fi
    python=$(find_python) || fail "expected Python $LEAST_PYTHON or newer; found none on PATH; install python3 and run this again"
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        apt_install "Python's venv module" "python$version-venv"
    fi
    quietly "making the virtual environment (Python $version)" "$python" -m venv --clear "$VENV"
}

install_project() {
    local extra=$1
    rm -f "$VENV/edgefl-installed-$extra" "$ROOT/target/edgefl-core-built"
    export PIP_CONSTRAINT=$ROOT/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
    quietly "installing the build tool" "$VENV/bin/python" -m pip install --quiet maturin
    quietly "building the Rust core, installing edgefl-runtime[$extra] (the first time: some minutes)" build "$extra"
    unset PIP_CONSTRAINT
    mkdir -p "$ROOT/target"
    core_inputs | digest >"$ROOT/target/edgefl-core-built"
    python_inputs | digest >"$VENV/edgefl-installed-$extra"
}

build() (
    cd "$ROOT"
    export VIRTUAL_ENV=$VENV PATH=$VENV/bin:$PATH
    # Without isolation, the pinned build tool is used and cargo's target folder is kept.
    MATURIN_PEP517_ARGS="--profile release --locked" \
        "$VENV/bin/python" -m pip install --no-build-isolation --editable ".[$1]"
)

# ------------------------------------------------------------ tflite-runtime

# Makes the environment for the tests with tflite-runtime, which can be in none with numpy 2, and
# sets TFLITE_VENV. Fails without a Python that tflite-runtime is released for.
prepare_tflite() {
    local python wanted
    TFLITE_VENV=$VENV-tflite
    wanted=$(digest <"$ROOT/constraints-tflite.txt")
    if [ "$(cat "$TFLITE_VENV/edgefl-installed" 2>/dev/null)" = "$wanted" ] && "$TFLITE_VENV/bin/python" -c '' 2>/dev/null; then
        return 0
    fi
    python=$(find_python_for_tflite) || return 1
    quietly "making the environment for tflite-runtime" make_tflite_venv "$python"
    printf '%s\n' "$wanted" >"$TFLITE_VENV/edgefl-installed"
}

find_python_for_tflite() {
    local name
    for name in "$VENV/bin/python" python3.11 python3; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

make_tflite_venv() {
    "$1" -m venv --clear "$TFLITE_VENV" &&
        "$TFLITE_VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
            --requirement "$ROOT/constraints-tflite.txt"
}

# ------------------------------------------------------------ Rust

# Usage: is_new_enough COMMAND; true where `COMMAND --version` works and says 1.85 or newer.
is_new_enough() {
    local version
    version=$("$1" --version 2>/dev/null | cut -d' ' -f2) || return 1
    [ -n "$version" ] && [ "$(printf '%s\n' "$LEAST_RUST" "$version" | sort -V | head -n1)" = "$LEAST_RUST" ]
}

find_rust() {
    local folder
    if is_new_enough rustc && is_new_enough cargo; then
        return 0
    fi
    for folder in "${CARGO_HOME:-${HOME:-/root}/.cargo}/bin" /usr/bin; do
        if is_new_enough "$folder/rustc" && is_new_enough "$folder/cargo"; then
            export PATH=$folder:$PATH
            return 0
        fi
    done
    return 1
}

ensure_rust() {
    find_rust && return 0
    # Debian keeps a Rust that is new enough for browsers under these names; it installs rustc and cargo.
    apt_install "Rust $LEAST_RUST or newer" rustc-web cargo-web
    hash -r
    find_rust || fail "expected Rust $LEAST_RUST or newer; found $(rustc --version 2>/dev/null || echo none); see https://rustup.rs"
}

ensure_linker() {
    command -v cc >/dev/null || apt_install "a C linker" gcc libc6-dev
}

# ------------------------------------------------------------ other people's programs

# The tests meet real brokers, a real browser and real clients; each of these is one Debian package.
ensure_peers() {
    local missing=()
    command -v mosquitto >/dev/null || [ -x /usr/sbin/mosquitto ] || missing+=(mosquitto)
    command -v mosquitto_pub >/dev/null || missing+=(mosquitto-clients)
    command -v chromium >/dev/null || missing+=(chromium)
    command -v node >/dev/null || missing+=(nodejs)
    command -v npm >/dev/null || missing+=(npm)
    command -v systemd-analyze >/dev/null || missing+=(systemd)
    [ ${#missing[@]} -eq 0 ] || apt_install "the brokers, clients, browser and service manager that the tests meet" "${missing[@]}"
    ensure_mqtt_js
}

# MQTT.js, in the versions of the committed lock file, beside the environment.
ensure_mqtt_js() {
    local source=$ROOT/tests/integration/mqtt_js wanted
    export EDGEFL_MQTT_JS=$VENV/mqtt_js
    wanted=$(cat "$source/package.json" "$source/package-lock.json" | digest)
    if [ "$(cat "$EDGEFL_MQTT_JS/edgefl-installed" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    mkdir -p "$EDGEFL_MQTT_JS"
    cp "$source/package.json" "$source/package-lock.json" "$EDGEFL_MQTT_JS/"
    quietly "installing MQTT.js" npm --prefix "$EDGEFL_MQTT_JS" ci --no-audit --no-fund --ignore-scripts
    printf '%s\n' "$wanted" >"$EDGEFL_MQTT_JS/edgefl-installed"
}

# ------------------------------------------------------------ helpers

# Usage: apt_install WHAT PACKAGE...; as root on Debian, else says which line does it.
apt_install() {
    local what=$1
    shift
    if ! command -v apt-get >/dev/null; then
        fail "expected $what; found none; install it (for Rust: https://rustup.rs) and run this again"
    fi
    if [ "$(id -u)" -ne 0 ]; then
        fail "expected $what; found none; run: sudo apt-get update && sudo apt-get install -y $*"
    fi
    # --no-remove: a machine's own packages are never taken away to make room.
    quietly "installing $what ($*)" apt_get "$@"
}

apt_get() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q && apt-get install -y -q --no-install-recommends --no-remove "$@"
}

# Usage: quietly WHAT COMMAND...; shows the command's output only where it fails.
quietly() {
    local what=$1 log started=$SECONDS
    shift
    log=$(mktemp)
    say "== $what"
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 60 "$log" >&2
        rm -f "$log"
        fail "expected this to work: $what; found the error above"
    fi
    rm -f "$log"
    [ $((SECONDS - started)) -lt 5 ] || say "   $((SECONDS - started)) s"
}
