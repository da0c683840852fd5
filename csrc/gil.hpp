// Giving up the interpreter's lock during native work, safely at interpreter exit.
// Owns the rule for daemon threads: CPython ends them where they ask for the lock again, by unwinding through frames
// that must not be unwound; here they stop before asking.
#pragma once

#include <pybind11/pybind11.h>

namespace pyspec {

class GilRelease {
public:
    GilRelease();
    ~GilRelease();
    GilRelease(const GilRelease &) = delete;
    GilRelease & operator=(const GilRelease &) = delete;

private:
    PyThreadState * state_;
};

// True in the thread that runs the interpreter's signal handlers.
bool in_main_thread();
// True once the interpreter has begun to exit.
bool is_exiting();

}  // namespace pyspec
