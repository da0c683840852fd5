# Sourced by scripts/demo and scripts/test: makes a virtual environment and installs pyspec into it.
#
# Owns the checks of what a machine must have and the words for what is missing. Sets `venv`.
# PYTHON, CXX and PYSPEC_VENV choose the interpreter, the compiler and the place.

say() { printf '\n==> %s\n' "$*"; }
fail() {
    printf '\npyspec: %s\n' "$*" >&2
    exit 1
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON is no Python 3.10 or newer that runs"
        printf '%s\n' "$PYTHON"
        return
    fi
    for candidate in python3 python python3.14 python3.13 python3.12 python3.11 python3.10; do
        if command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "no Python 3.10 or newer found$(command -v python3 >/dev/null && printf ' (python3 is %s)' "$(python3 --version 2>&1)"); install one, or name it: PYTHON=/path/to/python $0"
}

check_compiler() {
    local candidate
    if [ -n "${CXX:-}" ]; then
        command -v "${CXX%% *}" >/dev/null || fail "CXX=$CXX is no C++ compiler that can be run"
        return
    fi
    for candidate in c++ g++ clang++; do
        if command -v "$candidate" >/dev/null; then return; fi
    done
    fail "no C++ compiler found (looked for c++, g++, clang++); install one, e.g. 'apt-get install g++' on Debian and Ubuntu, 'dnf install gcc-c++' on Fedora, 'xcode-select --install' on macOS"
}

make_venv() {
    local python=$1
    if [ -x "$venv/bin/python" ]; then
        is_new_enough "$venv/bin/python" || fail "the environment $venv does not run; remove it and start again"
        say "using the environment $venv"
        return
    fi
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python has no venv module; install it (on Debian and Ubuntu: apt-get install python3-venv), or name another interpreter: PYTHON=/path/to/python $0"
    say "making the environment $venv with $("$python" --version)"
    "$python" -m venv "$venv" || fail "could not make the environment $venv"
}

# install_pyspec EXTRAS: the last lines of the log are the reason when it fails.
install_pyspec() {
    local log="$venv/install.log" pip step shown=""
    say "installing pyspec${1:+ with its extras $1} (the first time compiles llama.cpp: some 4 minutes on 2 cores; log in $log)"
    "$venv/bin/python" -m pip install --verbose --disable-pip-version-check "$root$1" >"$log" 2>&1 &
    pip=$!
    trap 'kill "$pip" 2>/dev/null' EXIT
    while kill -0 "$pip" 2>/dev/null; do
        sleep 1
        step=$(grep -aoE '^ *\[[0-9]+/[0-9]+\]' "$log" | tail -1 | tr -d ' ') || step=""
        # Each tenth step is enough for a log file; a person sees them all.
        if [ -n "$step" ] && [ "$step" != "$shown" ] && { [ -t 1 ] || [[ $step == *0/* ]]; }; then
            if [ -t 1 ]; then printf '\r    compiling %s ' "$step"; else printf '    compiling %s\n' "$step"; fi
            shown=$step
        fi
    done
    trap - EXIT
    if [ -t 1 ] && [ -n "$shown" ]; then printf '\n'; fi
    if ! wait "$pip"; then
        tail -n 40 "$log" >&2
        fail "installing failed; the reason is in the lines above, the whole log in $log"
    fi
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${PYSPEC_VENV:-$root/.venv}
